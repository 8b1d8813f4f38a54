"""The written start files really start their ranks: real torchrun, two "nodes" on this machine."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.clusters.projects import RANKS, SCRIPT, TORCHRUN, commands, migrate, project
from tests.support.torchrun import ATTEMPTS, EXIT_RACE, finish, kill, start

pytestmark = pytest.mark.training

# starts its command once per node, as one task per node does
SRUN = """#!/bin/bash
[ "$1" = --kill-on-bad-exit=1 ] || exit 9
shift
for node in $(seq 0 $((SLURM_NNODES - 1))); do
  SLURM_NODEID=$node SLURMD_NODENAME=localhost "$@" & tasks="${tasks-} $!"
done
for task in $tasks; do wait "$task" || exit 1; done
"""
SCONTROL = '#!/bin/bash\n[ "$1 $2 $3" = "show hostnames n[1-2]" ] && printf "localhost\\nn2\\n"\n'
EXPECTED = [
    f"ranks {node} {local} 4 --lr 0.05 --name my run --more" for node in (0, 1) for local in (0, 1)
]


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """The migrated project, with a program in place of its own that says who takes part."""
    return project(tmp_path / "project", scripts__train_sh=SCRIPT)


def ranks(output: str) -> list[str]:
    """The lines of the ranks, without what --tee puts before them."""
    return sorted(re.findall(r"ranks .*\S", output))


def test_two_agents_run_the_torchrun_file(started: Path, tmp_path: Path) -> None:
    assert migrate(started, "--launcher", "torchrun", "--gpus-per-node", "2") == 0
    (started / "main.py").write_text(RANKS)
    path = commands(tmp_path / "bin", {"torchrun": TORCHRUN})
    for attempt in range(ATTEMPTS):
        given = {"PATH": path, "HEAD": "localhost", "PORT": str(20000 + os.getpid() % 9000)}
        given["RUN_ID"] = f"run-{attempt}"
        line = ["bash", str(started / "run_2_nodes.sh"), "--more"]
        jobs = [start(line, tmp_path, given) for _ in range(2)]
        output = ends(jobs)
        if EXIT_RACE not in output:
            break
    assert [job.returncode for job in jobs] == [0, 0], output
    assert ranks(output) == EXPECTED
    assert len([*started.glob("logs/*/*/*/stdout.log")]) >= 4


def test_the_slurm_file_starts_a_task_on_each_node(started: Path, tmp_path: Path) -> None:
    assert migrate(started, "--launcher", "slurm", "--gpus-per-node", "2") == 0
    (started / "main.py").write_text(RANKS)
    stubs = {"torchrun": TORCHRUN, "srun": SRUN, "scontrol": SCONTROL}
    path = commands(tmp_path / "bin", stubs)
    for attempt in range(ATTEMPTS):
        given = {
            "PATH": path,
            "SLURM_JOB_ID": str(os.getpid() + 7 * attempt),
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_NNODES": "2",
            "SLURM_CPUS_PER_TASK": "2",
            "SLURM_SUBMIT_DIR": str(started),
        }
        # Slurm runs a copy
        (tmp_path / "slurm_script").write_text((started / "run_2_nodes.sbatch").read_text())
        job = start(["bash", "slurm_script", "--more"], tmp_path, given)
        output = ends([job])
        if EXIT_RACE not in output:
            break
    assert job.returncode == 0, output
    assert ranks(output) == EXPECTED


def ends(jobs: list[subprocess.Popen[str]]) -> str:
    """What all of them wrote; none outlives the test."""
    try:
        return "".join(text for job in jobs for text in finish(job))
    finally:
        for job in jobs:
            if job.poll() is None:
                kill(job)
