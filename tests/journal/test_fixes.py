"""What `check` writes can be taken back, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from tests.checking.conftest import Check, check, linter, project, write

__all__ = ["check", "linter", "project"]


def test_fixes_and_comments_are_taken_back(
    project: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {"main.py": "slow()\nbad()\n", "part/b.py": "slow()\n", "part/setup.py": ""}
    write(project, before)
    check("--fix")
    check("--add-noqa")
    assert (project / "main.py").read_text() == "fine()\nbad()  # noqa: DDP701\n"
    assert cli.main(["undo"]) == 0
    assert "Took back `ddpify check --add-noqa`" in capsys.readouterr().out
    assert (project / "main.py").read_text() == "fine()\nbad()\n"
    assert cli.main(["undo"]) == 0
    assert cli.main(["undo"]) == 0
    assert capsys.readouterr().out.count("Took back `ddpify check --fix`") == 2, "of two projects"
    assert {name: (project / name).read_text() for name in before} == before
    assert not list(project.rglob(".ddpify"))
