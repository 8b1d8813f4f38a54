"""A rewritten batch script trains on two nodes: real torchrun, both agents on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launchers.applied import migrated
from tests.launchers.cases import Case

pytestmark = pytest.mark.training

JOB = """#!/bin/bash
#SBATCH --nodes=2
set -euo pipefail
srun python main.py --lr 0.1 | sort
"""
MAIN = """import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
place = [os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"], str(int(total))]
sys.stdout.write(" ".join([*place, *sys.argv[1:]]) + "\\n")  # in one piece: ranks write at once
dist.destroy_process_group()
"""
# starts its command once per node, as one task per node does
SRUN = """#!/bin/bash
[ "$1" = --ntasks-per-node=1 ] || exit 9
shift
for node in $(seq "$SLURM_NNODES"); do "$@" & tasks="${tasks-} $!"; done
for task in $tasks; do wait "$task" || exit 1; done
"""
STUBS = {
    "srun": SRUN,
    "scontrol": "#!/bin/bash\necho localhost\necho other\n",
    "torchrun": f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n',
}


def test_two_agents_meet_and_form_one_group(tmp_path: Path) -> None:
    for name, text in STUBS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "job.sh").write_text(migrated(Case("job", JOB, ""), JOB))
    given = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "localhost,other",
        "SLURM_NNODES": "2",
        "NPROC_PER_NODE": "2",
        "OMP_NUM_THREADS": "1",
    }
    result = subprocess.run(
        ["bash", "job.sh"],
        cwd=tmp_path,
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert result.returncode == 0, result.stderr
    ranks = [f"{node} {local} 4 --lr 0.1" for node in (0, 1) for local in (0, 1)]
    assert result.stdout.splitlines() == ranks
