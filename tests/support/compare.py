"""Judges recorded runs: what migrated training must have in common with the original.

Functions that return numbers leave the tolerance to the test; those that assert say in the
message which rank, step and sample or file is the first that is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest

import torch

from tests.support.recording import Event, Run

_TORCH_LOG = re.compile(r"\[Gloo\] |\[[WI]\d{3,} ")  # glog lines of C++ code
Sample = tuple[int, int | str]  # number of the training loader, index in its data set


@dataclass(frozen=True)
class Divergence:
    """Where two runs differ first."""

    step: int
    optimizer: str
    parameter: int
    difference: float

    def __str__(self) -> str:
        return (
            f"step {self.step} ({self.optimizer}), parameter {self.parameter}: "
            f"relative difference {self.difference:.3g}"
        )


def max_relative_difference(run: Run, other: Run) -> tuple[float, ...]:
    """Per optimizer step, the largest difference of a parameter relative to its magnitude."""
    _same_steps(run, other)
    return tuple(
        max(map(_relative, step.parameters, twin.parameters), default=0.0)
        for step, twin in zip(run.steps, other.steps, strict=True)
    )


def first_divergence(run: Run, other: Run, tolerance: float = 0.0) -> Divergence | None:
    _same_steps(run, other)
    for number, (step, twin) in enumerate(zip(run.steps, other.steps, strict=True)):
        for place, pair in enumerate(zip(step.parameters, twin.parameters, strict=True)):
            if (difference := _relative(*pair)) > tolerance:
                return Divergence(number, step.optimizer, place, difference)
    return None


def same_training(reference: Run, runs: Sequence[Run], tolerance: float = 1e-10) -> None:
    """Every rank has the parameters of ``reference`` after every optimizer step."""
    assert reference.steps, f"the reference took no optimizer step ({reference.status})"
    for run in runs:
        divergence = first_divergence(reference, run, tolerance)
        assert divergence is None, f"rank {run.rank} leaves the reference at {divergence}"


def ranks_identical(runs: Sequence[Run]) -> None:
    """All ranks hold the same parameters, bit for bit, after every optimizer step."""
    assert any(run.steps for run in runs), "no optimizer step was recorded"
    for run in runs[1:]:
        divergence = first_divergence(runs[0], run)
        assert divergence is None, f"rank {run.rank} leaves rank {runs[0].rank} at {divergence}"


def training_samples(run: Run) -> tuple[Counter[Sample], ...]:
    """Per optimizer step the samples fetched for training since the step before.

    One entry more than steps where samples were fetched after the last step.
    """
    order = sorted({event.loader for event in _training_fetches(run)})
    windows: list[Counter[Sample]] = [Counter()]
    training = {id(event) for event in _training_fetches(run)}
    for event in run.events:
        if event.kind == "step":
            windows.append(Counter())
        elif id(event) in training:
            windows[-1].update((order.index(event.loader), sample) for sample in event.samples)
    return tuple(windows if windows[-1] else windows[:-1])


def evaluation_samples(run: Run) -> tuple[tuple[int | str, ...], ...]:
    """The samples of each pass that trained nothing, in order of their first batch."""
    training = {(event.loader, event.passed) for event in _training_fetches(run)}
    passes: dict[tuple[int, int], tuple[int | str, ...]] = {}
    for event in run.events:
        key = (event.loader, event.passed)
        if event.kind == "fetch" and key not in training:
            passes[key] = passes.get(key, ()) + event.samples
    return tuple(passes.values())


def samples_partition(reference: Run, runs: Sequence[Run]) -> None:
    """In every training step the ranks share out exactly the reference's samples."""
    expected = training_samples(reference)
    assert any(expected), "the reference fetched no training sample from a DataLoader"
    seen = [training_samples(run) for run in runs]
    for step, (wanted, *shares) in enumerate(zip_longest(expected, *seen, fillvalue=Counter())):
        for (run, share), (other, twin) in combinations(zip(runs, shares, strict=True), 2):
            both = (share & twin) - (wanted - (share | twin))
            repeated = {sample for sample in both if wanted[sample] < share[sample] + twin[sample]}
            assert (
                not repeated
            ), f"step {step}: ranks {run.rank} and {other.rank} both train on {_some(repeated)}"
        union = sum(shares, Counter())
        assert (
            union == wanted
        ), f"step {step}: missing {_some(wanted - union)}, extra {_some(union - wanted)}"


def files_once(runs: Sequence[Run], *, allow_existing_folders: bool = False) -> dict[str, int]:
    """No path is changed by two ranks; returns the rank of each path.

    A folder made again with exist_ok counts as changed, because whether it was there first is a
    matter of time; ``allow_existing_folders`` is for programs that order this with a barrier.
    """
    writers: dict[str, int] = {}
    for run in runs:
        for event in run.files:
            if allow_existing_folders and event.operation == "os.mkdir" and event.existed:
                continue
            first = writers.setdefault(event.path, run.rank)
            assert first == run.rank, (
                f"{event.path} is changed by rank {first} and by rank {run.rank} "
                f"({event.operation} after {event.steps} steps)"
            )
    return writers


def stdout_once(runs: Sequence[Run]) -> str:
    """Only rank 0 prints; returns what it printed."""
    for run in runs:
        lines = run.stdout.splitlines()
        assert (
            run.rank == 0 or not lines
        ), f"rank {run.rank} prints {len(lines)} lines, first: {lines[0]!r}"
    return "".join(run.stdout for run in runs if run.rank == 0)


def stderr_once(runs: Sequence[Run]) -> None:
    """Only rank 0 shows progress bars, logs and warnings; lines of torch's C++ code pass."""
    for run in runs:
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        shown = [line for line in lines if not _TORCH_LOG.match(line)]
        assert run.rank == 0 or not shown, f"rank {run.rank} shows on stderr: {shown[0]!r}"


def same_collectives(runs: Sequence[Run], *, by_site: bool = True) -> tuple[str, ...]:
    """All ranks enter the same collectives in the same order; returns their names.

    Gloo and NCCL pair the n-th call of one rank with the n-th of another whatever they are, so
    this finds wrong pairings that end without an error. Without ``by_site`` a call pairs with any
    of the same name: for programs that balance a guarded barrier with another.
    """
    sequences = [[event for event in run.events if event.kind == "collective"] for run in runs]
    for number, calls in enumerate(zip_longest(*sequences)):
        described = {_described(call, by_site) for call in calls}
        assert len(described) == 1, f"collective {number} differs: {sorted(described)}"
    return runs[0].collectives


def _described(call: Event | None, by_site: bool) -> str:
    if call is None:
        return "none"
    return f"{call.name} at {call.site}" if by_site else call.name


def _same_steps(run: Run, other: Run) -> None:
    counts = len(run.steps), len(other.steps)
    assert counts[0] == counts[1], (
        f"{counts[0]} optimizer steps in one run ({run.status}), {counts[1]} in the other "
        f"({other.status})"
    )
    for number, (step, twin) in enumerate(zip(run.steps, other.steps, strict=True)):
        shapes = [[tuple(p.shape) for p in each.parameters] for each in (step, twin)]
        assert shapes[0] == shapes[1], f"step {number}: different parameters, {shapes}"


def _relative(left: torch.Tensor, right: torch.Tensor) -> float:
    same = (left == right) | (left.isnan() & right.isnan())
    if bool(same.all()):
        return 0.0
    differing, twin = left[~same], right[~same]
    if not bool((differing.isfinite() & twin.isfinite()).all()):
        return float("inf")
    finite = [side[side.isfinite()].abs().max() for side in (left, right)]
    return float((differing - twin).abs().max() / max(finite))


def _training_fetches(run: Run) -> Iterator[Event]:
    """Fetches of the passes that trained.

    Telling by is_grad_enabled alone would count a validation loop that opens no_grad in its
    body: a pass trains if a backward runs while it is under way.
    """
    fetches: dict[tuple[int, int], list[int]] = {}
    ends: dict[tuple[int, int], int] = {}
    for place, event in enumerate(run.events):
        if event.kind == "fetch":
            fetches.setdefault((event.loader, event.passed), []).append(place)
        elif event.kind == "end":
            ends[event.loader, event.passed] = place
    for key, places in fetches.items():
        end = ends.get(key, _next_fetch(run.events, places[-1]))
        trained = any(event.kind == "backward" for event in run.events[places[0] : end])
        yield from (run.events[p] for p in places if trained and run.events[p].grad)


def _next_fetch(events: Sequence[Event], place: int) -> int:
    """A pass that was left early lasts until some loader is asked again."""
    later = (p for p in range(place + 1, len(events)) if events[p].kind == "fetch")
    return next(later, len(events))


def _some(samples: Counter[Sample] | set[Sample]) -> str:
    shown = sorted({str(sample) for _, sample in samples})
    return f"{len(shown)} samples ({', '.join(shown[:5])}{', ...' if shown[5:] else ''})"
