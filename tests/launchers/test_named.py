"""A launcher is named in place of the script, and every launcher of the project is migrated."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import discover
from ddpify.outcome import Refusal
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put_fixture, write

MAIN = "main_classification.py"
LAUNCHERS = {
    "Makefile": f"PYTHON ?= python\ntrain:\n\t$(PYTHON) {MAIN} --epochs 1\n",
    "make/train.mk": f"train:\n\tpython {MAIN}\n",
    "slurm/job.sbatch": f"#!/bin/bash\n#SBATCH --nodes=2\npython prepare.py\nsrun python {MAIN}\n",
    "slurm/job.slurm": f"#!/bin/bash\nsrun python {MAIN}\n",
    "scripts/run.sh": f"#!/bin/bash\ncd ..\nSCRIPT={MAIN}\npython $SCRIPT\n",
    "docs/train.md": f"```bash\npython {MAIN}\n```\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = put_fixture("classification", tmp_path / "project").parent
    for name, text in LAUNCHERS.items():
        file = root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (root / "prepare.py").write_text("print('prepared')\n")
    return root


@pytest.mark.parametrize("name", [name for name in LAUNCHERS if not name.endswith(".md")])
def test_a_launcher_names_its_script(name: str, project: Path) -> None:
    found = discover.entries([project / name])
    assert not isinstance(found, Refusal)
    assert MAIN in [script.name for script in found.scripts]
    assert found.root == project


def test_a_launcher_of_nothing_is_refused(project: Path) -> None:
    (project / "Makefile").write_text("all:\n\ttrue\n")
    found = discover.entries([project / "Makefile"])
    assert isinstance(found, Refusal)
    assert "starts no Python script" in found.message


@pytest.mark.parametrize("name", [MAIN, "slurm/job.sbatch"])
def test_all_launchers_are_migrated_and_once(name: str, project: Path) -> None:
    outcome = migrate([project / name], Settings())
    assert not outcome.refusals
    changed = {change.path for change in outcome.changes}
    assert changed >= {*LAUNCHERS, "README.md", MAIN}
    write(outcome.changes, project)
    assert migrate([project / name], Settings()).changes == ()
    assert migrate([project / MAIN], Settings()).findings == ()
