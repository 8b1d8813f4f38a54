"""`migrate -o DIR` writes a project that is complete, says what is not in it, and can be run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify import belongings
from tests.journal.conftest import CHANGES, looks
from tests.projects import FIXTURES

Run = Callable[..., tuple[int, str, str]]
LARGE = 9 << 20
READS = 'import json\n\nprint(json.load(open("configs/base.json")), flush=True)\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with all that a project may have, in git; it is the current folder."""
    root = tmp_path / "toy"
    for folder in (
        "configs",
        "lib",
        "logs",
        "images",
        "data",
        "runs",
        ".venv",
        "__pycache__",
        "bin",
    ):
        (root / folder).mkdir(parents=True)
    (root / "train.py").write_text(READS + (FIXTURES / "toy_ladder/02_epochs.py").read_text())
    (root / "configs/base.json").write_text("{}")
    (root / "lib/__init__.py").write_text("")
    (root / "bin/download.sh").write_text("#!/bin/sh\n")
    (root / "bin/download.sh").chmod(0o755)
    (root / "requirements.txt").write_text("torch\n")
    (root / "base.json").symlink_to("configs/base.json")
    (root / "inside").symlink_to(root / "configs")
    (root / "outside").symlink_to("../beside")
    (root / ".venv/pyvenv.cfg").write_text("")
    (root / "__pycache__/x.pyc").write_text("")
    for name in ("data/train.bin", "runs/last.pt", "pretrained.pth"):
        with (root / name).open("wb") as stream:
            stream.truncate(LARGE)
    for number in range(4):
        (root / f"images/{number}.png").write_text("")
    monkeypatch.setattr(belongings, "MANY", 3)
    monkeypatch.chdir(root)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for words in ("init", "add pretrained.pth train.py"):
        subprocess.run(["git", *words.split()], check=True, capture_output=True)
    return root


@pytest.mark.training
def test_the_project_is_complete_and_runs(
    project: Path, ddpify: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = project.parent / "out"
    before = looks(project)
    code, said, _ = ddpify("migrate", "train.py", "-o", "../out")
    assert code == 0
    assert re.search(r"Wrote 3 files:\n(  \.\./out/(ddp_\w+|train)\.py\n){3}", said)
    now = {path: one for path, one in looks(project).items() if not path.startswith("out")}
    assert now == before, "the original stays as it is"
    _has_all(project, out)
    assert {"out/ddp_utils.py", "out/ddp_metrics.py"} <= set(looks(project))
    assert "\nCopied 8 files more, unchanged.\n" in said
    assert "is written in the original): data/train.bin, images/.\n" in said
    assert "(copy what the program reads): runs/last.pt.\nLeft out: .git, .venv.\n" in said
    assert said.count("runs/last.pt") == 1
    command = re.search(r"\n  (cd \.\./out && torchrun .* train\.py)\n", said)
    assert command
    monkeypatch.setenv("EPOCHS", "1")
    run = re.sub("torchrun .*=gpu", sys.executable, command[1])
    done = subprocess.run(run, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("{}\n")


def _has_all(project: Path, out: Path) -> None:
    copied = "configs/base.json lib/__init__.py bin/download.sh requirements.txt pretrained.pth"
    for name in copied.split():
        assert not (out / name).is_symlink()
        assert (out / name).read_bytes() == (project / name).read_bytes()
    assert os.access(out / "bin/download.sh", os.X_OK)
    assert (out / "logs").is_dir()
    assert os.readlink(out / "base.json") == "configs/base.json"
    assert (out / "inside").resolve() == (out / "configs").resolve(), "not the original's"
    assert (out / "outside").resolve() == project.parent / "beside"
    assert os.readlink(out / "images") == str(project / "images")
    assert os.readlink(out / "data/train.bin") == str(project / "data/train.bin")
    for name in (".git", ".venv", "__pycache__", ".ddpify", "runs/last.pt"):
        assert not os.path.lexists(out / name)


def test_where_it_is_written(project: Path, ddpify: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the project itself, which does not take the copy for a part; from another folder."""
    assert ddpify("migrate", "train.py", "-o", ".")[::2] == (
        2,
        f"ddpify: {project}: is the project itself; use --inplace\n",
    )
    above = f"ddpify: {project.parent}: holds the project; name a folder of its own for the copy\n"
    assert ddpify("migrate", "train.py", "-o", "..")[::2] == (2, above)
    for _ in range(2):
        code, said, _ = ddpify("migrate", "train.py", "-o", "copy")
        assert (code, "  cd copy && torchrun" in said) == (0, True)
        assert not (project / "copy/copy").exists()
    (project / "copy/configs/base.json").write_text("mine")
    code, _, said = ddpify("migrate", "train.py", "-o", "copy")
    assert (code, "copy/configs/base.json: exists with other content" in said) == (2, True)
    assert (project / "copy/configs/base.json").read_text() == "mine"
    shutil.rmtree(project / "copy")
    monkeypatch.chdir(project / "bin")
    said = ddpify("migrate", "../train.py", "-o", "/tmp/../" + str(project.parent / "a b"))[1]
    assert re.search(r"  cd '/.*/a b/bin' && torchrun .*=gpu \.\./train\.py\n", said)


def test_json_has_every_file(project: Path, ddpify: Run) -> None:
    from json import loads

    written = loads(ddpify("migrate", "train.py", "-o", "../out", "--format", "json")[1])["written"]
    out = project.parent / "out"
    found = {str(one) for one in out.rglob("*") if one.is_symlink() or one.is_file()}
    assert {os.path.normpath(project / one) for one in written} == found


def test_a_folder_that_is_no_project_is_not_copied(
    make: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ddpify.write import WriteError, write_to

    root = make()
    monkeypatch.setattr(belongings, "_MOST", 1)
    with pytest.raises(WriteError, match="holds too many files to be copied; copy the project"):
        write_to(CHANGES, root, root.parent / "out", ["a.py"])
    assert not (root.parent / "out").exists()
