"""Scripts that mention an entry are found, the others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.launchers import discover

FOUND = {
    "run.sh": "python main.py\n",
    "scripts/train.bash": "python ../main.py\n",
    "job.slurm": "srun python main.py\n",
    "job.sbatch": "srun python main.py\n",
    "bin/train": "#!/usr/bin/env bash\npython main.py\n",
    "module.sh": "python -m main --lr 1\n",
    "comment.sh": "# main.py\n",
    "each.sh": "for t in a b; do python train_$t.py; done\n",
    "Makefile": "train:\n\tpython main.py\n",
    "build/GNUmakefile": "train:\n\tpython main.py\n",
    "make/train.mk": "train:\n\tpython main_$(TASK).py\n",
    "README.md": "Run `python main.py`.\n",
    "docs/Train.MD": "python main.py\n",
}
NOT_FOUND = {
    "other.sh": "python eval.py\n",
    "longer.sh": "python train_main.py main.python\n",
    "notes": "python main.py\n",
    "notes.txt": "#!/bin/sh\npython main.py\n",
    "Makefile.in": "train:\n\tpython main.py\n",
    "CHANGELOG.md": "    python main.py\n",
    "docs/history.md": "    python main.py\n",
    "README.rst": "python main.py\n",
    "tool": "#!/usr/bin/env python\n# main.py\n",
    ".git/hooks/pre-commit": "#!/bin/sh\npython main.py\n",
    "venv/run.sh": "python main.py\n",
    "mine/pyvenv.cfg": "",
    "mine/run.sh": "python main.py\n",
    "node_modules/run.sh": "python main.py\n",
    "large.sh": "python main.py\n" * 50_000,
    "a/b/c/d/e/f/g/run.sh": "python main.py\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (FOUND | NOT_FOUND).items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "link.sh").symlink_to(tmp_path / "run.sh")
    return tmp_path


def test_scripts_that_mention_an_entry_are_found(project: Path) -> None:
    assert discover(project, ["main.py"]) == tuple(sorted(FOUND))


def test_a_name_may_be_quoted_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("""python '01 it'"'"'s.py' --lr 1\n""")
    (tmp_path / "b.sh").write_text("python 01\\ it\\'s.py\n")
    (tmp_path / "c.sh").write_text("python 'it'\n")
    assert discover(tmp_path, ["01 it's.py"]) == ("a.sh", "b.sh")


def test_packages_are_found_by_their_module_name(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python -m pkg.train\n")
    assert discover(tmp_path, ["pkg/train/__main__.py"]) == ("run.sh",)


def test_no_entries_no_scripts(project: Path) -> None:
    assert discover(project, []) == ()
