"""Jobs as the observer would read them: a small network is trained, in numpy."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ddpify.verify.recording import (
    Backward,
    CollectiveRecord,
    EndRecord,
    EventRecord,
    Fetch,
    FileChange,
    ForwardRecord,
    Job,
    LoaderRecord,
    Optimizer,
    Parameter,
    RunRecord,
    StepRecord,
    StepTaken,
    WaitRecord,
)

Array = NDArray[np.float64]
Weights = list[Array]
NAMES = ("encoder.weight", "encoder.bias", "head.weight", "head.bias")
SAMPLES, BATCH, HIDDEN = 192, 16, 12


@dataclass(frozen=True)
class Spoiled:
    """How the distributed program was migrated wrongly; nothing: rightly."""

    summed: bool = False  # gradients are added up over the ranks, not averaged
    overlapping: bool = False  # every rank reads the same samples
    everywhere: bool = False  # every rank prints, and writes the log
    nan_from: int | None = None  # a step from which on losses are not numbers


@dataclass
class Trainer:
    """One process of ``world``; ``shares`` hands it every rank's batch, as all-reduce would."""

    rank: int
    world: int
    spoiled: Spoiled
    optimizers: int = 1
    weights: Weights = field(default_factory=lambda: _initial())
    steps: list[StepRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    printed: list[float] = field(default_factory=list)  # losses, reduced over the ranks

    def train(self, count: int) -> None:
        for number in range(count):
            self._step(number)

    def _step(self, number: int) -> None:
        per_epoch = SAMPLES // BATCH
        start = number % per_epoch * BATCH
        shares = [self._share(start, rank) for rank in range(self.world)]
        mine = shares[self.rank]
        now = 0.4 + 0.02 * number
        contents = tuple(f"{index:08x}" for index in mine)
        passed = number // per_epoch
        self.events.append(Fetch(number, now, 0, passed, tuple(mine), contents, True))
        if self.world > 1:
            self.events.append(ForwardRecord(number, now, 0, True, True, True))
            self.events.append(CollectiveRecord(number, now, "broadcast", "train.py:41", 256, True))
        each = [_backward(self.weights, share)[0] for share in shares]
        self.printed.append(sum(each) / self.world)
        loss = each[self.rank]
        if self.spoiled.nan_from is not None and number >= self.spoiled.nan_from:
            loss = float("nan")
        self.events.append(Backward(number, now, loss))
        gradients = self._reduced(shares)
        rate = 0.25 * 0.5 ** (number // 20)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight -= rate * gradient
        self.events.append(StepTaken(number, now, number))
        self._record(number, rate, loss, gradients)
        if number % per_epoch == per_epoch - 1:
            self._evaluate(number, passed)

    def _share(self, start: int, rank: int) -> list[int]:
        if self.spoiled.overlapping:
            rank = 0
        return list(range(start + rank, start + BATCH, self.world))

    def _reduced(self, shares: list[list[int]]) -> Weights:
        each = [_backward(self.weights, share)[1] for share in shares]
        total = [sum(parts[1:], parts[0]) for parts in zip(*each, strict=True)]
        factor = 1.0 if self.spoiled.summed else 1 / self.world
        return [part * factor for part in total]

    def _record(self, number: int, rate: float, loss: float, gradients: Weights) -> None:
        step = StepRecord(
            number=number,
            optimizer=number % self.optimizers,
            learning_rates=(rate,),
            losses=(loss,),
            gradients=tuple(part.ravel() for part in gradients),
            gradient_digests=tuple(map(digest, gradients)),
            parameters=tuple(part.ravel().copy() for part in self.weights),
            digests=tuple(map(digest, self.weights)),
            seconds=(0.9 if number == 0 else 0.02) / self.world + 0.004,
            memory=180_000_000 + 1_000_000 * self.rank + 4096 * number,
            random={"torch": "aa", "numpy": "bb", "random": "cc"},
        )
        self.steps.append(step)

    def _evaluate(self, number: int, passed: int) -> None:
        now = 0.41 + 0.02 * number
        mine = tuple(range(self.rank, 64, self.world))
        contents = tuple(f"e{index}" for index in mine)
        self.events.append(EndRecord(number + 1, now, 0, passed))
        self.events.append(Fetch(number + 1, now, 1, passed, mine, contents, False))
        self.events.append(EndRecord(number + 1, now, 1, passed))
        if self.world > 1:
            self.events.append(CollectiveRecord(number, now, "all_reduce", "train.py:67", 16, True))
        if self.rank == 0 or self.spoiled.everywhere:
            for operation, path in (("open", "log.csv"), ("torch.save", "out/last.pt")):
                self.events.append(FileChange(number, now, operation, path, passed > 0))

    def run(self) -> RunRecord:
        prints = self.rank == 0 or self.spoiled.everywhere
        lines = [f"epoch {n // 12}: loss {loss:.4f}" for n, loss in enumerate(self.printed)]
        first = _initial()
        parameters = tuple(
            Parameter(name, tuple(part.shape), "float64")
            for name, part in zip(NAMES, first, strict=True)
        )
        kinds = ("SGD", "AdamW", "Adagrad")
        optimizers = tuple(
            Optimizer(
                number,
                kinds[number % 3],
                parameters,
                tuple(part.ravel() for part in first),
                tuple(map(digest, first)),
            )
            for number in range(self.optimizers)
        )
        return RunRecord(
            rank=self.rank,
            world_size=self.world,
            status="finished",
            exit_code=0,
            backend="gloo" if self.world > 1 else "",
            optimizers=optimizers,
            steps=tuple(self.steps),
            events=tuple(self.events),
            waits=self._waits(),
            began=1000 + 0.1 * self.rank,
            ended=0.5 + 0.02 * len(self.steps),
            loaders=(
                LoaderRecord(
                    0, "TensorDataset", "DistributedSampler", SAMPLES, BATCH // self.world
                ),
                LoaderRecord(1, "TensorDataset", "SequentialSampler", 64, 64),
            ),
            wrapped=NAMES,
            stdout="".join(f"{line}\n" for line in lines[11::12]) if prints else "",
        )

    def _waits(self) -> tuple[WaitRecord, ...]:
        """Of each collective; the last one of a rank is left as the others are."""
        calls = (event for event in self.events if isinstance(event, CollectiveRecord))
        return tuple(WaitRecord(c.name, c.site, c.seconds, c.seconds + 0.005) for c in calls)


def digest(values: Array) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


@functools.cache
def _data() -> tuple[Array, Array]:
    generator = np.random.default_rng(3)
    inputs = generator.normal(size=(SAMPLES, 8))
    return inputs, np.tanh(inputs @ generator.normal(size=(8, 3))) + 0.2 * generator.normal(
        size=(SAMPLES, 3)
    )


def _initial() -> Weights:
    generator = np.random.default_rng(7)
    sizes = ((8, HIDDEN), (HIDDEN,), (HIDDEN, 3), (3,))
    return [generator.normal(size=size) * 0.3 for size in sizes]


def _backward(weights: Weights, batch: list[int]) -> tuple[float, Weights]:
    """Mean squared error of a two-layer network, and its gradients."""
    inputs, targets = (part[batch] for part in _data())
    hidden = np.tanh(inputs @ weights[0] + weights[1])
    error = hidden @ weights[2] + weights[3] - targets
    out = 2 * error / error.size
    back = (out @ weights[2].T) * (1 - hidden**2)
    gradients = [inputs.T @ back, back.sum(0), hidden.T @ out, out.sum(0)]
    return float(np.mean(error**2)), gradients


@functools.cache
def job(world: int, steps: int, spoiled: Spoiled | None = None, optimizers: int = 1) -> Job:
    """One launch on so many ranks."""
    runs = []
    for rank in range(world):
        trainer = Trainer(rank, world, spoiled or Spoiled(), optimizers)
        trainer.train(steps)
        runs.append(trainer.run())
    start = "python" if world == 1 else f"torchrun --standalone --nproc_per_node={world}"
    command = f"{start} train.py --epochs 4 --batch-size 16"
    return Job(tuple(runs), "/tmp/copy", command, 0, 6.5 / world + 2)
