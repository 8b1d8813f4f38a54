"""What is said of what was read: programs, where their processes begin, and what was left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify import cli

BEGIN = 'import torch.distributed as dist\n\ndist.init_process_group("gloo")\n'
END = "dist.destroy_process_group()\n"
FILES = {
    "pyproject.toml": '[tool.ddpify]\nexclude = ["old.py"]\n',
    ".gitignore": "made/\n",
    ".git/HEAD": "",
    "main.py": BEGIN + END,
    "shared.py": "import torch.distributed as dist\n\n\ndef total(x):\n    dist.all_reduce(x)\n",
    "old.py": "import torch\n",
    "made/by_hand.py": "import torch\n",
    "build/lib.py": "import torch\n",
    "try.ipynb": '{"cells": []}',
    "run.sh": "#" * (600 * 1024),
    "notes.txt": "",
    ".cache/x.py": "",
    "__pycache__/x.py": "",
}
WHY = {
    "build": "made by tools, going by its name",
    "link.py": "a link: what it leads to is read there",
    "made": "left out by .gitignore or `exclude`",
    "old.py": "left out by .gitignore or `exclude`",
    "run.sh": "too large for a launch script",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program, and much that is not read."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link.py").symlink_to("main.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_verbose_lists_what_was_read_and_what_not(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in "first", "cached":
        cli.main(["check", "-v"])
        shown = capsys.readouterr()
        assert shown.err.splitlines() == [
            "ddpify: read as several ranks run it: main.py"
            " (torch.distributed.init_process_group in main.py:3)",
            "ddpify: read as several ranks run it: shared.py:4"
            " (nothing was seen that starts its processes)",
            *(f"ddpify: not read: {path} ({why})" for path, why in WHY.items()),
        ]
        assert shown.out == (
            "No findings: 2 programs read as several ranks run them; 1 of them seen to start its"
            " processes. Not read: 3 files, 2 folders (-v lists them).\n"
        )


def test_json_has_it_too(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["check", "--output-format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert {one["path"]: one["why"] for one in document["skipped"]} == WHY
    assert [one["start"] for one in document["programs"]] == ["main.py", "shared.py:4"]


def test_paths_are_those_from_here(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project / "made")
    cli.main(["check", "-v", ".."])
    assert f"not read: {project}/old.py" in capsys.readouterr().err


def test_a_program_that_is_too_large_says_where_it_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = "\n".join(f"    dist.broadcast(x, src={n % 2})" for n in range(13_000))
    later = "def report(x):\n    dist.reduce(x, dst=0)\n"
    Path("main.py").write_text(
        f"{BEGIN}\n\ndef steps(x):\n{steps}\n\n\n{later}\n\nsteps(1)\nreport(1)\n{END}"
    )
    cli.main(["check", "--no-cache"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "ddpify: too large to be read to the end, so bugs may be missed: main.py (read as far as"
        " main.py:12"
    )
    assert line.endswith(", not report())")
