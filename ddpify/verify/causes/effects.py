"""What is measured, printed and written beside the training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from statistics import fmean
from typing import Final

from ddpify.verify.causes.base import Case
from ddpify.verify.checks.base import numbered, some
from ddpify.verify.checks.check_evaluation import evaluated
from ddpify.verify.checks.check_files import Shared, left, shared, without_ids
from ddpify.verify.checks.check_output import is_factor
from ddpify.verify.checks.check_probe import buffers_part
from ddpify.verify.checks.lines import Difference
from ddpify.verify.checks.outputs import STREAMS, compare_output, shown
from ddpify.verify.verdict import Cause, Verdict

_TRACKED: Final = re.compile(r"tfevents|(?:^|/)(?:wandb|mlruns|comet|neptune)/")
_SAVED: Final = (".pt", ".pth", ".ckpt", ".pth.tar")
_MADE: Final = ("os.mkdir", "os.rmdir", "shutil.rmtree", "os.remove")
_BAR: Final = re.compile(r"\d+%\||it/s\]|s/it\]|\d+it \[")
_TRAINING_FAILED: Final = (
    "samples",
    "gradients",
    "trajectory",
    "learning-rates",
    "completed",
    "steps",
)


def evaluation(case: Case) -> Iterator[Cause]:
    """Numbers that are wrong though the model is right."""
    c = case.c
    twice = [each for each in evaluated(c) if each.duplicates] if c.finished else []
    if case.failed("evaluation") and twice:
        count = numbered(twice[0].duplicates.total(), "sample")
        yield case.cause("DDP205", f"{count} of an evaluation pass are seen more than once")
    if case.failed("probe") and buffers_part(c) and not c.ranks_part and not c.ranks_start_apart:
        yield case.cause("DDP305", "identical parameters, and another output on each rank")
    training = any(
        check.name in _TRAINING_FAILED and check.verdict is Verdict.FAIL for check in case.checks
    )
    if case.failed("metrics") and not training and not twice:
        yield from _metrics(case)


def _metrics(case: Case) -> Iterator[Cause]:
    c = case.c
    wrong = _wrong(case)
    ratios = tuple(ratio for _, each in wrong for ratio in each.ratios)
    passes = [sum(not each.training for each in own) for own in (c.passes, *c.rank_passes)]
    if max(passes[1:]) != passes[0] and c.same_steps:
        counts = f"{passes[0]} evaluations in one process, {max(passes[1:])} on the ranks"
        yield case.cause("DDP203", f"{counts}, in the same number of optimizer steps")
        return
    first = next((f"{place}: {each}" for place, each in wrong), "")
    for factor, words in ((1 / c.nproc, f"1/{c.nproc}"), (float(c.nproc), str(c.nproc))):
        if is_factor(ratios, factor):
            yield case.cause("DDP701", f"all numbers that differ are {words} times the original's")
            return
    if not ratios:
        return
    own = _own_losses(case)
    rule = "DDP702" if own else "DDP701"
    yield case.cause(rule, own or f"the model is the same, its numbers are not: {first}")


def _wrong(case: Case) -> list[tuple[str, Difference]]:
    """Not where several ranks write: lines that stand there twice are no wrong numbers."""
    places = {each.path for each in shared(case.c.ranks)}
    places |= {f"TensorBoard, {PurePosixPath(path).parent}" for path in left(case.c)[1]}
    return [each for each in compare_output(case.c).wrong if each[0] not in places]


def _own_losses(case: Case) -> str:
    """Printed numbers that are rank 0's own loss, of a step or of a pass over the data."""
    printed = " ".join(each.distributed for _, each in _wrong(case))
    numbers = set(re.findall(r"\d+\.\d{2,}", printed))
    losses = [loss for step in case.c.ranks[0].steps for loss in step.losses]
    means = [fmean(losses[:end]) for end in range(1, len(losses) + 1)]
    for loss in (*losses, *means):
        if any(f"{loss:.{len(number.partition('.')[2])}f}" == number for number in numbers):
            return f"{loss:.6g} is printed: the loss of rank 0's share alone"
    return (
        ""
        if any(not each.training for each in case.c.passes)
        else "no evaluation, and other numbers"
    )


def files(case: Case) -> Iterator[Cause]:
    if not case.failed("files-once"):
        return
    for each in shared(case.c.ranks):
        rule = _rule_of(case, each)
        yield case.cause(
            rule,
            f"ranks {each.first} and {each.rank} both change {each.path} ({each.change.operation})",
        )
    if case.c.finished:
        yield from _own_names(case)


def _rule_of(case: Case, each: Shared) -> str:
    if _TRACKED.search(each.path):
        return "DDP504"
    if each.change.operation == "torch.save" or each.path.endswith(_SAVED):
        return "DDP601"
    if each.change.operation in _MADE:
        return "DDP503"
    texts = {text.path for text in case.c.evidence.texts}
    data = each.change.steps == 0 and each.path not in texts
    kept = each.path in case.c.evidence.left_by_reference
    return "DDP204" if data and kept else "DDP502"


def _own_names(case: Case) -> Iterator[Cause]:
    """Paths that stand where another rank's path of the same kind stands."""
    _, extra = left(case.c)
    known = {without_ids(path) for path in case.c.evidence.left_by_reference}
    twins = [path for path in extra if without_ids(path) in known]
    if not twins:
        return
    rule = "DDP504" if all(_TRACKED.search(path) for path in twins) else "DDP506"
    yield case.cause(rule, f"the ranks leave several of one kind: {some(twins)}")


def checkpoints(case: Case) -> Iterator[Cause]:
    for pair in case.c.evidence.checkpoints if case.failed("checkpoints") else ():
        if "`module.`" in pair.problem or "process group" in pair.problem:
            yield case.cause("DDP602", f"{pair.path}: {pair.problem}")


def console(case: Case) -> Iterator[Cause]:
    if not case.failed("console-once"):
        return
    for run in case.c.ranks[1:]:
        for stream in STREAMS:
            lines = list(shown(run, stream))
            bars = [line for line in lines if _BAR.search(line)]
            if bars:
                yield case.cause("DDP505", f"rank {run.rank} shows a progress bar")
            if len(lines) > len(bars):
                other = next(line for line in lines if line not in bars)
                yield case.cause("DDP501", f"rank {run.rank} writes to {stream}: {other.strip()!r}")


def cleanup(case: Case) -> Iterator[Cause]:
    job = case.c.evidence.distributed
    left_open = [run.rank for run in case.c.ranks if run.group_left_open]
    if left_open and job.returncode != 0 and not any(run.crashed for run in case.c.ranks):
        evidence = f"ranks {some(left_open)} left the group open, exit code {job.returncode}"
        yield case.cause("DDP102", evidence)
