"""A migrated project has nothing left to migrate."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop


@pytest.mark.parametrize(
    "project",
    [
        pytest.param(CLASSIFICATION, id="classification"),
        pytest.param(DATAPARALLEL, id="dataparallel"),
    ],
)
def test_migrating_twice_changes_nothing(
    project: Project, workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = str(workshop.original(project, "to-do") / project.entry)
    assert cli.main(["diff", entry]) == cli.TO_DO
    assert "+++ " in capsys.readouterr().out
    tree = workshop.migrated(project, "twice")
    capsys.readouterr()  # the migration speaks where no other test asked for it before
    before = contents(tree)
    assert "torchrun" in before[project.launcher].decode()
    assert cli.main(["diff", str(tree / project.entry)]) == cli.CLEAN
    assert capsys.readouterr().out == ""
    assert cli.main(["migrate", str(tree / project.entry), "--inplace"]) == cli.CLEAN
    assert contents(tree) == before


def contents(tree: Path) -> dict[str, bytes]:
    files = (path for path in tree.rglob("*") if path.is_file())
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in files}
