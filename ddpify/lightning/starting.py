"""DDP963: how the scripts of a project start programs that start their processes themselves.

``python train.py`` stays. What shows it one GPU, or starts it as another number of tasks than it
has GPUs, keeps Lightning from having them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ddpify import discover, launchers
from ddpify.launchers.model import Launch
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.source import Site

RULE: Final = "DDP963"
_LIST: Final = "name the GPUs that it is to train on, or take CUDA_VISIBLE_DEVICES away"
_TASKS: Final = (
    "on n GPUs: `#SBATCH --gres=gpu:n` and `--ntasks-per-node=n`, and `srun python …`, which starts"
    " n processes for Lightning to join; with several nodes the Trainer needs `num_nodes`, too"
)


def findings(root: Path, entries: Sequence[str]) -> Iterator[Finding]:
    """A finding per command below ``root`` that starts an entry and leaves it one GPU."""
    files = tuple(p.relative_to(root).as_posix() for p in discover.python_files(root))
    for path in launchers.discover(root, entries):
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        for piece, launch in launchers.launches(path, text, entries, files):
            if not launch.already_torchrun:
                yield from map(piece.placed, _of(launch, text))


def _of(launch: Launch, text: str) -> Iterator[Finding]:
    severity = Severity.NOTE if launch.brief else Severity.WARNING
    shown = f"{launch.entry} is shown one GPU"
    if launch.pin is not None:
        edit = Edit(How.TEXT, Site(launch.site.path, launch.pin), "")
        yield Finding(RULE, launch.site, shown, severity, (edit,))
    elif launch.gpus.ids is not None and launch.gpus.count == 1:
        yield Finding(RULE, launch.site, shown, Severity.NOTE, advice=_LIST)
    problem = launchers.tasks_problem(text, launch.slurm)
    if problem:
        yield Finding(RULE, launch.site, problem, Severity.NOTE, advice=_TASKS)
