"""Recorded runs made up for a test: right ones, of which each test spoils one thing.

A model of two parameters trains on 12 samples in batches of four; the gradient of a batch is the
mean of its samples', as DDP makes it of the ranks' shares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddpify.verify.causes import diagnose
from ddpify.verify.checks import run_checks
from ddpify.verify.evidence import Evidence
from ddpify.verify.options import Options
from ddpify.verify.recording import (
    Backward,
    CollectiveRecord,
    EndRecord,
    EventRecord,
    Fetch,
    FileChange,
    ForwardRecord,
    Job,
    NoiseRecord,
    Optimizer,
    Parameter,
    ProbeRecord,
    RunRecord,
    StepRecord,
    StepTaken,
)
from ddpify.verify.verdict import Cause, Check

Array = NDArray[np.float64]
NAMES = ("body.weight", "head.bias")
PARAMETERS = (Parameter(NAMES[0], (4,), "float64"), Parameter(NAMES[1], (2,), "float64"))
SAMPLES, BATCH, EPOCHS = 12, 4, 2
BEFORE = (np.array([0.5, -0.25, 1.0, 0.125]), np.zeros(2))


def digest(values: Array) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:12]


def order(epoch: int) -> list[int]:
    """All samples, in another order in every epoch."""
    return [(7 * place + 5 * epoch) % SAMPLES for place in range(SAMPLES)]


def batches() -> list[list[int]]:
    """The global ones, of all epochs."""
    every = [order(epoch) for epoch in range(EPOCHS)]
    return [each[start : start + BATCH] for each in every for start in range(0, SAMPLES, BATCH)]


def sample_gradient(sample: int, weights: Sequence[Array]) -> tuple[Array, ...]:
    pull = np.array([sample + 1.0, 2.0, -1.0, 0.5 * sample])
    return (0.1 * (weights[0] - pull / 10), 0.1 * (weights[1] + (sample - 4) / 7))


def sample_loss(sample: int, weights: Sequence[Array]) -> float:
    return float(1 + 0.1 * sample + (weights[0] ** 2).sum() + (weights[1] ** 2).sum())


@dataclass
class Trainer:
    """One process; ``gradient``, ``loss`` and ``rate`` say how it strays from the right ones.

    ``shares`` are all ranks' batches of each step, ``together`` whether gradients are averaged
    over them.
    """

    rank: int = 0
    world: int = 1
    shares: list[list[list[int]]] = field(default_factory=list)
    together: bool = True
    gradient: float = 1.0
    loss: Callable[[int, float], float] = lambda _step, value: value
    rate: Callable[[int], float] = lambda _step: 0.1
    before: Sequence[Array] = BEFORE
    steps: list[StepRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)

    def run(self) -> RunRecord:
        weights = tuple(part.copy() for part in self.before)
        for number, shares in enumerate(self.shares):
            weights = self._step(number, shares, weights)
        status = {"rank": self.rank, "world_size": self.world, "status": "finished"}
        return RunRecord(
            **status,  # type: ignore[arg-type]
            exit_code=0,
            backend="gloo" if self.world > 1 else "",
            optimizers=(self._optimizer(),),
            steps=tuple(self.steps),
            events=tuple(self.events),
            probe=probe(weights[0]),
            wrapped=NAMES if self.world > 1 else (),
            stdout="epoch 0: loss 0.5000\n" if self.rank == 0 else "",
        )

    def _optimizer(self) -> Optimizer:
        digests = tuple(map(digest, self.before))
        return Optimizer(0, "SGD", PARAMETERS, tuple(self.before), digests)

    def _step(
        self, number: int, shares: list[list[int]], weights: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        mine = shares[self.rank]
        per_epoch = len(self.shares) // EPOCHS
        epoch, first = divmod(number, per_epoch)
        contents = tuple(f"content {sample}" for sample in mine)
        self.events.append(Fetch(number, number, 0, epoch, tuple(mine), contents, True))
        if self.world > 1:
            self.events.append(ForwardRecord(number, number, 0, True, True, False))
        value = float(np.mean([sample_loss(sample, weights) for sample in mine]))
        value = self.loss(number, value)
        self.events.append(Backward(number, number, value))
        used = [sample for share in shares for sample in share] if self.together else mine
        each = [sample_gradient(sample, weights) for sample in used]
        gradients = tuple(
            self.gradient * sum(parts[1:], parts[0]) / len(each)
            for parts in zip(*each, strict=True)
        )
        rate = self.rate(number)
        after = tuple(w - rate * g for w, g in zip(weights, gradients, strict=True))
        self.events.append(StepTaken(number, number, number))
        self.steps.append(_step(number, rate, value, gradients, after))
        if first == per_epoch - 1:
            self.events.append(EndRecord(number + 1, number, 0, epoch))
        return after


def _step(
    number: int, rate: float, loss: float, gradients: Sequence[Array], after: Sequence[Array]
) -> StepRecord:
    return StepRecord(
        number=number,
        optimizer=0,
        learning_rates=(rate,),
        losses=(loss,),
        gradients=tuple(gradients),
        gradient_digests=tuple(map(digest, gradients)),
        parameters=tuple(after),
        digests=tuple(map(digest, after)),
        seconds=0.02,
        memory=10 * 2**20,
        random={"torch": "seeded"},
    )


def probe(output: Array) -> ProbeRecord:
    return ProbeRecord(output, digest(output))


def split(world: int) -> list[list[list[int]]]:
    """Every global batch shared out, sample by sample."""
    return [[batch[rank::world] for rank in range(world)] for batch in batches()]


def reference() -> RunRecord:
    return Trainer(shares=[[batch] for batch in batches()]).run()


def ranks(world: int = 2, **how: Any) -> tuple[RunRecord, ...]:
    """``how`` is what Trainer takes; a function of the rank gives each rank its own."""
    own = [
        {
            name: value.of(rank) if isinstance(value, PerRank) else value
            for name, value in how.items()
        }
        for rank in range(world)
    ]
    shares = {"shares": split(world)}
    return tuple(Trainer(rank, world, **{**shares, **own[rank]}).run() for rank in range(world))


@dataclass(frozen=True)
class PerRank:
    of: Callable[[int], Any]


def job(runs: Sequence[RunRecord], **changes: Any) -> Job:
    return replace(Job(tuple(runs), "/copy/n", "torchrun train.py", 0, 2.0), **changes)


def evidence(
    distributed: Sequence[RunRecord] | Job | None = None,
    one: RunRecord | None = None,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> Evidence:
    """A right run, where nothing else is given."""
    many = ranks() if distributed is None else distributed
    return Evidence(
        options=Options(Path("train.py"), **(options or {})),
        reference=replace(job((one or reference(),)), folder="/copy/1"),
        distributed=many if isinstance(many, Job) else job(many),
        **more,
    )


def spoiled(runs: Iterable[RunRecord], rank: int, **changes: Any) -> tuple[RunRecord, ...]:
    """One rank's run changed."""
    return tuple(replace(run, **changes) if run.rank == rank else run for run in runs)


def checked(found: Evidence, name: str) -> Check:
    return next(check for check in run_checks(found) if check.name == name)


def causes(found: Evidence) -> tuple[Cause, ...]:
    return diagnose(found, run_checks(found))


def rules(found: Evidence) -> list[str]:
    return [cause.rule for cause in causes(found)]


def change(path: str, operation: str = "open", steps: int = 6, existed: bool = False) -> FileChange:
    return FileChange(steps, 1.0, operation, path, existed)


def collective(
    name: str, size: int = 8, site: str = "train.py:9", done: bool = True
) -> CollectiveRecord:
    return CollectiveRecord(6, 1.0, name, site, size, done)


def noisy(run: RunRecord, noise: str) -> RunRecord:
    met: dict[str, Any] = {noise: 5}
    return replace(run, noise=NoiseRecord(**met))
