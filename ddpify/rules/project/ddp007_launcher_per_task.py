"""DDP007: srun starts torchrun on each of several tasks, or on nodes that it is not told of."""

from __future__ import annotations

from ddpify.rules.base import Example, Rule, Severity
from ddpify.rules.examples.process import PROCESS

_JOB = "#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node={tasks}\n{line}\n"
_ONE = "srun torchrun --nnodes 1 --nproc_per_node 4 --master_port 29501 main.py"
_ALONE = "srun torchrun --standalone --nproc_per_node=4 main.py"
_MEETING = '--rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint="$HEAD:29500"'


def _job(nodes: int, tasks: int, line: str) -> Example:
    text = _JOB.format(nodes=nodes, tasks=tasks, line=line)
    return Example((*PROCESS.files, ("job.slurm", text)))


def _script(text: str) -> Example:
    return Example((*PROCESS.files, ("sweep.sh", f"#!/bin/bash\n{text}\n")))


_RUN = "torchrun --nproc_per_node=2 --master_port={port} main.py --lr {lr} &"
_TEED = "nohup torchrun --max_restarts=0 --log_dir=$LOGS main.py 2>&1 | tee log &"
_TWICE = (
    _script(f"for lr in 1 2; do\n  {_RUN.format(port=29501, lr='$lr')}  # DDP007\ndone\nwait"),
    _script(
        "torchrun --nproc_per_node 2 main.py &\ntorchrun --nproc_per_node 2 main.py &  # DDP007"
    ),
    _script(f"{_TEED}\n{_TEED}  # DDP007\nwait"),
)
_ONCE = (
    _script(f"for lr in 1 2; do\n  {_RUN.format(port='$((29500 + lr))', lr='$lr')}\ndone\nwait"),
    _script(f"for lr in 1 2; do\n  {_RUN.format(port=29501, lr='$lr')}\n  wait\ndone"),
    _script(f"{_RUN.format(port=29501, lr=1)}\n{_RUN.format(port=29502, lr=2)}\nwait"),
    _script(f"{_TEED.replace('$LOGS', 'logs $OPTIONS')}\n" * 2 + "wait"),
    _script(f"export PET_MASTER_PORT=$PORT\n{_TEED}\n{_TEED}\nwait"),
    _script("torchrun --standalone main.py &\ntorchrun --standalone main.py &\nwait"),
)
# Found by ddpify/launchers/per_task.py, in files that are not Python.
RULE = Rule(
    "DDP007",
    "launcher-per-task",
    "srun runs its command once per task, and torchrun starts all processes of a node: with four"
    " tasks per node there are four torchruns, of which three find the port taken (EADDRINUSE)."
    " With --standalone, or without --nnodes, a torchrun knows of its own node alone: on two nodes"
    " two jobs train, each with WORLD_SIZE of one node, and of four tasks on one node each trains"
    " the same on the same GPUs. Nor can a second torchrun listen on the"
    " port of one that the same script has left running with `&`; that is 29500 where none is"
    " named.",
    "torchrun documentation; Slurm's srun; measured with two torchruns on one machine",
    bad=(_job(1, 4, f"{_ONE}  # DDP007"), _job(2, 1, f"{_ALONE}  # DDP007"), *_TWICE),
    good=(
        _job(1, 1, _ONE),
        _job(1, 4, _ONE.replace("srun", "srun --ntasks-per-node=1")),
        _job(1, 1, _ALONE),
        _job(2, 1, f"srun torchrun --nnodes 2 --nproc_per_node 4 {_MEETING} main.py"),
        _job(2, 2, f"srun torchrun --nnodes 4 --nproc_per_node 2 {_MEETING} main.py"),
        _job(1, 2, f"srun --gpus-per-task=2 {_ALONE.removeprefix('srun ')}"),
        _job(2, 1, _ALONE.replace("srun", "srun --ntasks=1")),
        *_ONCE,
        _job(1, 4, 'ARGS="--ntasks-per-node=1"\n' + _ONE.replace("srun", "srun $ARGS")),
    ),
    severity=Severity.ERROR,
)
