"""The rewritten shell scripts really start the ranks they name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop, edit, migrate

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("project", "shorter", "output"),
    [
        pytest.param(
            CLASSIFICATION,
            (("GPU_IDS=0\n", "GPU_IDS=0,1\n"), ("EPOCHS=10\n", "EPOCHS=1\n")),
            "outputs/digits_cnn_seed42",
            id="classification",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            DATAPARALLEL,
            (("DEVICES=0,1,2,3 ", "DEVICES=0,1 "), ("--epochs 10 ", "--epochs 1 ")),
            "results/cnn_bn",
            id="dataparallel",
        ),
    ],
)
def test_the_launcher_trains_on_two_ranks(
    project: Project, shorter: tuple[tuple[str, str], ...], output: str, workshop: Workshop
) -> None:
    tree = workshop.original(project, "launched")
    edit(tree / project.launcher, *shorter)
    migrate(project, tree)
    stdout, stderr = run_script(tree / project.launcher)
    assert "do not divide" not in stderr  # 1437 samples: 15 of the last 63 are one more on rank 0
    kept = sorted(path.name for path in (tree / output).rglob("*") if path.is_file())
    checkpoint = Path(project.checkpoint).name
    assert {checkpoint, project.log} <= set(kept), kept
    assert len(re.findall(r"^(?:Best|Best val) acc(?:uracy)?: [\d.]+%$", stdout, re.M)) == 1


def run_script(script: Path) -> tuple[str, str]:
    """Run it with bash and the torchrun beside this python; a hang is ended with its ranks."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    job = subprocess.Popen(
        ["bash", script.name],
        cwd=script.parent,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = job.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGTERM)  # torchrun ends its ranks on this signal
        stdout, stderr = job.communicate()
    assert job.returncode == 0, stdout + stderr
    return stdout, stderr
