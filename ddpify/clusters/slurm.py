"""The batch script for Slurm: one task per node, which is torchrun; how it ends, begins anew."""

from __future__ import annotations

from ddpify.clusters.model import GPUS, ClusterJob, StartText, comment
from ddpify.clusters.torchrun import arguments, environment
from ddpify.launchers.slurm import FIRST_NODE

_CORES = 8  # of a GPU: its process, and those that load data for it

SUFFIX = ".sbatch"
_TEXT = StartText("""\
#!/usr/bin/env bash
#
# Starts @@entry on @@size with @@gpus GPUs each. From the project's top folder:
#
#     sbatch @@path
#
# Arguments behind the file's name go to @@entry, too.

@@batch
#SBATCH --nodes=@@nodes
# One task per node: it is torchrun, which starts one process per GPU. With a task per GPU each of
# them would be a torchrun of its own, and they would fight over one port.
#SBATCH --ntasks-per-node=1
# Where your cluster counts GPUs as --gres=gpu:@@gpus, write that.
#SBATCH --gpus-per-node=@@gpus
# Cores of that one task, for all processes of the node and those that load data. Without this
# line they share a single core.
#SBATCH --cpus-per-task=@@cores
# A job whose node fails is put back into the queue, and begins this script again.
#SBATCH --requeue
# Then it goes on writing in the same output file instead of beginning it anew.
#SBATCH --open-mode=append
# 120 seconds before the time limit this shell (B:), and not the program, is sent USR1.
#SBATCH --signal=B:USR1@120

# yes: at the time limit the job is put back into the queue and begins again. Only for a program
# that goes on from its last checkpoint: any other one begins anew each time and never ends.
REQUEUE="${REQUEUE:-no}"

# Ends at the first command that fails, and at a variable that nobody has set.
set -euo pipefail
# Slurm runs a copy of this file from elsewhere: only this variable says where the project is.
cd "$SLURM_SUBMIT_DIR"@@folder
@@setup@@environment@@arguments
# From its second run on a job may need another argument to go on from its checkpoint.
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
  set -- "$@" # --resume checkpoints/last.pt
fi

# The nodes meet at the first of them. Not `head -n 1`, which closes the pipe early: that can be
# an error under `set -o pipefail`.
HEAD_NODE=@@first
# Jobs that share a node must not share a port; the system hands out those from 32768 on.
PORT=$((10000 + SLURM_JOB_ID % 20000))

# CPU threads of one process: its share of the task's cores, and at least one.
THREADS=$((${SLURM_CPUS_PER_TASK:-1} / @@gpus))
export OMP_NUM_THREADS=$((THREADS > 0 ? THREADS : 1))
# Since Slurm 22.05 srun does not take this from the job by itself: torchrun would get one core.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
# Nodes with several network cards: NCCL (GPU) and Gloo (CPU) take one that they find, which may
# lead nowhere; the first collective hangs then. Name it if that happens (`ip -brief address`).
# export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0
# INFO says which network NCCL takes, and why it fails.
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"

OPTIONS=(
  # The run begins when so many nodes are there, and not before.
  --nnodes="$SLURM_NNODES"
  # One process per GPU.
  --nproc-per-node="${NPROC_PER_NODE:-@@gpus}"
  # The nodes agree on their numbers by themselves.
  --rdzv-backend=c10d
  --rdzv-endpoint="$HEAD_NODE:$PORT"
  # What was started by another job, or before a requeue, is not let in.
  --rdzv-id="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"
  # torchrun starts nothing again by itself: a job that has failed ends, and shows why.
  --max-restarts=0
  # What each process prints also goes into a file of its own: the reason of a failure is in the
  # file of the rank that failed first.
  --log-dir="logs/$SLURM_JOB_ID"
  --tee=3
)

# shellcheck disable=SC2329
at_the_limit() { # called by trap
  if [ "$REQUEUE" = yes ]; then
    echo "time limit: job $SLURM_JOB_ID goes back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID" # ends the tasks with TERM; torchrun hands that on
  else
    echo "time limit: job $SLURM_JOB_ID ends (REQUEUE=yes: it would go back)" >&2
  fi
}
trap at_the_limit USR1

# Each task runs these two lines. Task 0 is on the first node and opens the meeting place: torchrun
# would have to guess that from names, and guesses wrong where a node has another name for itself.
# The nodes are told to reach each other by Slurm's names (--local-addr). How long a node waits for
# the first to answer (read, 60 s by default) and for all others (join, 600 s) is said in seconds.
# The quotes are single ones because the variables are those of the task.
# shellcheck disable=SC2016
TASK='
  host=$([ "$SLURM_NODEID" = 0 ] && echo true || echo false)
  exec torchrun --local-addr="$SLURMD_NODENAME" \\
    --rdzv-conf="is_host=$host,read_timeout=@@patience,join_timeout=@@patience" "$@"
'
# --kill-on-bad-exit: one torchrun that fails ends those of the other nodes, which would wait for
# it. In the background, because a shell hears signals only when it waits.
srun --kill-on-bad-exit=1 bash -c "$TASK" torchrun "${OPTIONS[@]}" @@program "$@" &
STEP=$!
CODE=0
wait "$STEP" || CODE=$?
# Above 128 it was a signal that ended the waiting, and perhaps not srun.
while [ "$CODE" -gt 128 ] && kill -0 "$STEP" 2>/dev/null; do
  CODE=0
  wait "$STEP" || CODE=$?
done
exit "$CODE"
""")
_FILL_IN = """\
# What your cluster asks for; take out one # of those that you need.
##SBATCH --partition=gpu
##SBATCH --account=project
##SBATCH --time=24:00:00"""


def text(job: ClusterJob, path: str) -> str:
    """The whole file."""
    return _TEXT.filled(
        job,
        path,
        batch=_batch(job),
        cores=_CORES * (job.gpus_per_node or GPUS),
        setup=_setup(job),
        environment=environment(job),
        arguments=arguments(job),
        first=FIRST_NODE,
    )


def _batch(job: ClusterJob) -> str:
    taken = job.taken
    lines = [f"#SBATCH --job-name={job.stem}"]
    if not taken.is_batch:
        return "\n".join([*lines, _FILL_IN])
    if any("--job-name" in one or " -J" in one for one in taken.batch):
        lines = []
    lines += [*comment(f"From {taken.place.rpartition(':')[0]}."), *taken.batch]
    if taken.single:
        said = " ".join(taken.single)
        lines += comment(f"Meant for one process there, and not taken over: {said}")
    return "\n".join(lines)


def _setup(job: ClusterJob) -> str:
    if job.taken.setup:
        return "".join(f"{line}\n" for line in job.taken.setup)
    return (
        "# What makes Python and torch known on a node, if a login shell does it for you:\n"
        "# module load cuda; source .venv/bin/activate\n"
    )
