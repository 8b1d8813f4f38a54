"""DDP963: how the scripts of a project start programs that start their processes themselves.

``python train.py`` stays. What shows it one GPU, or starts it as another number of tasks than it
has GPUs, keeps Lightning from having them all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ddpify import discover, launchers
from ddpify.launchers.model import Launch
from ddpify.launchers.script import line_starts
from ddpify.lightning.devices import ADVICE, ONE
from ddpify.lightning.limits import of_argument
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Span

RULE: Final = "DDP963"
_DEVICES: Final = "DDP960"
_ONES: Final = ("1", "[0]")
_ELSEWHERE: Final = "how many devices the Trainer is given here is said elsewhere"
_LIST: Final = "name the GPUs that it is to train on, or take CUDA_VISIBLE_DEVICES away"
_TASKS: Final = (
    "on n GPUs: `#SBATCH --gres=gpu:n` and `--ntasks-per-node=n`, and `srun python …`, which starts"
    " n processes for Lightning to join; with several nodes the Trainer needs `num_nodes`, too"
)


def findings(
    root: Path, entries: Sequence[str], sections: Collection[str], settings: Settings
) -> Iterator[Finding]:
    """A finding per command below ``root`` that starts an entry and leaves it one GPU.

    ``sections``: the paths (``trainer``) by which options of a command are a Trainer's.
    """
    files = tuple(p.relative_to(root).as_posix() for p in discover.python_files(root))
    for path in launchers.discover(root, entries):
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        for piece, launch in launchers.launches(path, text, entries, files):
            if not launch.already_torchrun:
                yield from map(piece.placed, _of(launch, text))
                for section in sections:
                    yield from map(piece.placed, _options(launch, piece.text, section, settings))


def _options(launch: Launch, text: str, section: str, settings: Settings) -> Iterator[Finding]:
    """``--trainer.devices 1`` of LightningCLI, ``trainer.devices=1`` of hydra, and what counts
    batches, or has loaders made anew."""
    severity = Severity.NOTE if launch.brief else Severity.WARNING
    starts = line_starts(text)
    begin, end = offsets(starts, launch.site.span)
    option = rf"(?<=[\s\"'])(?:--|\+{{0,2}}){re.escape(section)}\.(\w+)(?:=|\s+)(\S+)"
    for found in re.finditer(option, text[begin:end]):
        site = Site(launch.site.path, _span(starts, begin + found.start(2), begin + found.end(2)))
        value = found[2].strip("\"'")
        if found[1] not in ("devices", "gpus"):
            for one in of_argument(found[1], value, launch.site, settings):
                worse = one.severity is Severity.ERROR  # a trial may ask for it
                yield replace(one, severity=severity) if worse else one
        elif found[1] == "devices" and value in _ONES:
            edit = Edit(How.TEXT, site, found[2].replace(value, "auto"))
            yield Finding(_DEVICES, launch.site, ONE, severity, (edit,))
        elif found[1] == "gpus" or "$" in value:
            message = f"{_ELSEWHERE} (`{found[2]}`)"
            yield Finding(_DEVICES, launch.site, message, Severity.NOTE, advice=ADVICE)


def offsets(starts: Sequence[int], span: Span) -> tuple[int, int]:
    """Where a span begins and ends in the text."""
    first, last = starts[span.line - 1], starts[span.end_line - 1]
    return first + span.column, last + span.end_column


def _span(starts: Sequence[int], begin: int, end: int) -> Span:
    """The span between two offsets."""
    first, last = bisect_right(starts, begin), bisect_right(starts, end)
    return Span(first, begin - starts[first - 1], last, end - starts[last - 1])


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
        fix = tuple(_one_per_gpu(launch, text))
        problem += "; each task takes --cpus-per-task" * ("--cpus-per-task" in text and bool(fix))
        severity = Severity.WARNING if fix else Severity.NOTE
        yield Finding(RULE, launch.site, problem, severity, fix, "" if fix else _TASKS)
    elif launch.remark:
        message = launch.remark.removeprefix("; ")
        yield Finding(RULE, launch.site, message, Severity.NOTE, advice=_TASKS)


def _one_per_gpu(launch: Launch, text: str) -> Iterator[Edit]:
    """On several nodes that the job states: its Trainer is told of them (DDP963), too."""
    starts = line_starts(text)
    begin, end = offsets(starts, launch.site.span)
    several = launch.slurm and launchers.nodes_of(text) > 1
    found = launchers.tasks_edit(text, text[begin:end]) if several else None
    if found is not None:
        yield Edit(How.TEXT, Site(launch.site.path, _span(starts, *found[:2])), found[2])
