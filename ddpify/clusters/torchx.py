"""The start file for TorchX, which submits to Slurm, Kubernetes, AWS Batch and others."""

from __future__ import annotations

import shlex

from ddpify.clusters.model import GPUS, ClusterJob, StartText, comment
from ddpify.clusters.torchrun import arguments

SUFFIX = "_torchx.sh"
_TEXT = StartText("""\
#!/usr/bin/env bash
#
# Starts @@entry on @@size with @@gpus processes each by TorchX's component dist.ddp:
#
#     SCHEDULER=slurm bash @@path
#
# Arguments behind the file's name go to @@entry, too. It needs `pip install torchx` where it
# is called.

# Ends at the first command that fails, and at a variable that nobody has set.
set -euo pipefail
# TorchX hands over the folder that it is called in, and starts the program there.
cd "$(dirname "${BASH_SOURCE[0]}")"@@folder

# slurm, kubernetes, aws_batch, ...: `torchx runopts` shows what each has to be told. What is the
# same each time belongs into a file .torchxconfig beside this one:
#     [slurm]
#     partition = gpu
#     time = 1440
# local_cwd starts all "nodes" on this machine, to try it.
SCHEDULER="${SCHEDULER:-slurm}"
@@arguments
OPTIONS=(
  # Nodes x processes of each, one process per GPU.
  -j @@jobs
  # What a node is asked for. The defaults are no GPU, 2 cores and 1 GB, in which nothing trains.
  --gpu @@gpus
  --cpu @@cores
  --memMB @@memory
  # The port of the first node where all meet. TorchX tells the others its name.
  --rdzv_port @@port
  # How often the scheduler starts all again after a failure. Worth more than 0 only if the program
  # goes on from its last checkpoint by itself: else it begins anew each time.
  --max_retries 0
@@environment  @@what
)

exec torchx run --scheduler "$SCHEDULER" dist.ddp "${OPTIONS[@]}" -- "$@"
""")
_CORES, _MEMORY = 8, 64_000  # of a GPU: its process, and those that load data for it


def text(job: ClusterJob, path: str) -> str:
    """The whole file."""
    gpus = job.gpus_per_node or GPUS
    option = "-m" if job.taken.module else "--script"
    return _TEXT.filled(
        job,
        path,
        arguments=arguments(job),
        jobs=f"{job.nodes}x{gpus}",
        cores=_CORES * gpus,
        memory=_MEMORY * gpus,
        environment=_environment(job),
        what=f"{option} {shlex.quote(job.program[-1])}",
    )


def _environment(job: ClusterJob) -> str:
    """What TorchX hands to the program: NAME=value,NAME=value, in which a value has no ``=``."""
    every = job.taken.variables
    told = [f"{name}={value}" for name, value in every if value and "=" not in value]
    untold = [name for name, value in every if not value or "=" in value]
    lines = []
    if untold:
        said = f"Not taken over from {job.taken.place}, for TorchX cannot be told: "
        lines += comment(said + ", ".join(untold))
    if told:
        lines += comment(f"What {job.taken.place} has in its environment.")
        lines.append(f"--env {shlex.quote(','.join(told))}")
    return "".join(f"  {line}\n" for line in lines)
