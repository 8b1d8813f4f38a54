"""The reference beside the ranks: what all checks and the diagnosis read, computed once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ddpify.verify import distance
from ddpify.verify.checks import pairs
from ddpify.verify.checks.contents import Content, contents
from ddpify.verify.checks.pairs import StepPair, Worst
from ddpify.verify.checks.passes import LoaderPass, Samples, passes, training_windows
from ddpify.verify.evidence import Evidence
from ddpify.verify.options import NOISES
from ddpify.verify.recording import RunRecord


@dataclass(frozen=True)
class Divergence:
    """Where the runs part first; ``kind`` is data, contents, initial, loss, gradient,
    learning rate or parameter, in the order in which one leads to the next."""

    step: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"first divergence: {self.text}"


@dataclass(frozen=True)
class Comparison:
    """All steps, ranks and optimizers count from 0."""

    evidence: Evidence

    @cached_property
    def one(self) -> RunRecord:
        """The reference."""
        return self.evidence.reference.runs[0]

    @property
    def ranks(self) -> tuple[RunRecord, ...]:
        return self.evidence.distributed.runs

    @property
    def tolerance(self) -> float:
        return self.evidence.options.allowed

    @property
    def nproc(self) -> int:
        return len(self.ranks)

    @cached_property
    def groups(self) -> int:
        """Parameter groups that FSDP shards and trains, 0 if it shards nothing."""
        return max((run.held.groups for run in self.ranks if run.held is not None), default=0)

    @cached_property
    def finished(self) -> bool:
        """Both jobs came to their end: whatever is missing was never done."""
        return self.evidence.reference.finished and self.evidence.distributed.finished

    @cached_property
    def common_steps(self) -> int:
        """Optimizer steps that every run took."""
        return min(len(run.steps) for run in (self.one, *self.ranks))

    @cached_property
    def passes(self) -> tuple[LoaderPass, ...]:
        return passes(self.one)

    @cached_property
    def rank_passes(self) -> tuple[tuple[LoaderPass, ...], ...]:
        return tuple(passes(run) for run in self.ranks)

    @cached_property
    def windows(self) -> tuple[tuple[Samples, tuple[Samples, ...]], ...]:
        """Per optimizer step the reference's training samples, and those of each rank.

        Samples after the last step count only where nothing was stopped: else they are chance.
        """
        every = [training_windows(run) for run in (self.one, *self.ranks)]
        stopped = any(run.status == "stopped" for run in (self.one, *self.ranks))
        count = max(map(len, every)) if self.finished and not stopped else self.common_steps
        rows = ([w[i] if i < len(w) else Counter() for w in every] for i in range(count))
        return tuple((row[0], self._divided(row[1:])) for row in rows)

    def _divided(self, shares: Sequence[Samples]) -> tuple[Samples, ...]:
        """What ranks train on: of a batch that all of them make whole, models do each its rows."""
        whole = self.evidence.of_whole_batches and all(share == shares[0] for share in shares)
        return (shares[0], *(Counter() for _ in shares[1:])) if whole else tuple(shares)

    @cached_property
    def wrong_window(self) -> int | None:
        """The first step whose samples the ranks do not share out exactly."""
        rows = enumerate(self.windows)
        return next((n for n, (wanted, shares) in rows if together(shares) != wanted), None)

    @cached_property
    def contents(self) -> Content:
        return contents(self.one, self.ranks)

    @cached_property
    def unmatched(self) -> str:
        """Why the optimizers' parameters cannot be compared, or ""."""
        for run in self.ranks:
            for one, other in zip(self.one.optimizers, run.optimizers, strict=False):
                if pairs.alignment(one, other) is None:
                    return f"{one.kind} has other parameters on rank {run.rank}"
        return ""

    @cached_property
    def initial(self) -> tuple[Worst, ...]:
        return pairs.initial(self.one, self.ranks)

    @cached_property
    def parameters(self) -> tuple[Worst, ...]:
        """After each step; see ``distance.parameter_differences``."""
        return pairs.per_step(
            (p, distance.parameter_differences(p.parameters, p.one.parameters, p.others))
            for p in self.pairs
        )

    @cached_property
    def gradients(self) -> tuple[Worst, ...]:
        """Of each step, relative to the norm of its whole gradient."""
        floors = pairs.gradient_floors(self.one)
        return pairs.per_step((p, _gradients(p, floors)) for p in self.pairs)

    @cached_property
    def losses(self) -> tuple[Worst, ...]:
        """Of each common step, the reference's against the mean over the ranks."""
        rows = {number: self.loss_pairs(number) for number in range(self.common_steps)}
        sizes = [abs(one) for row in rows.values() for one, _ in row if math.isfinite(one)]
        floor = distance.SMALLEST_PART * max(sizes, default=0.0)
        worst = {
            n: max((pairs.loss_difference(*each, floor) for each in row), default=None)
            for n, row in rows.items()
        }
        return tuple(Worst(n, -1, "loss", each) for n, each in worst.items() if each is not None)

    def loss_pairs(self, number: int) -> list[tuple[float, float]]:
        """For each backward of a step the reference's loss and the mean over the ranks."""
        found = [run.steps[number].losses for run in self.ranks]
        return pairs.mean_losses(self.one.steps[number].losses, found)

    @cached_property
    def rates_part(self) -> tuple[int, int] | None:
        """(step, rank) where a learning rate first is not the reference's."""
        for number in range(self.common_steps):
            wanted = self.one.steps[number].learning_rates
            for run in self.ranks:
                if not same_rates(wanted, run.steps[number].learning_rates):
                    return number, run.rank
        return None

    @cached_property
    def ranks_start_apart(self) -> tuple[str, ...]:
        """Parameters that differ between ranks before the first step."""
        return pairs.parted_at_start(self.ranks).get(0, ())

    @cached_property
    def ranks_part(self) -> tuple[int, tuple[str, ...]] | None:
        """The first step after which parameters differ between ranks, and which."""
        for number in range(min(len(run.steps) for run in self.ranks)):
            if names := pairs.parted(self.ranks, number):
                return number, names
        return None

    @cached_property
    def gradient_factor(self) -> float | None:
        """What the first gradient that differs is of the reference's, if it is one number."""
        first = first_above(self.gradients, self.tolerance)
        if first is None:
            return None
        found = [
            pairs.gradient_factor(p, self.tolerance) for p in self.pairs if p.number == first.step
        ]
        known = [each for each in found if each is not None]
        alike = len(known) == len(found) and max(known) - min(known) <= 1e-6 * abs(known[0])
        return known[0] if alike else None

    @cached_property
    def same_steps(self) -> bool:
        """Every rank took the reference's number of steps, of every optimizer."""
        counts = [Counter(step.optimizer for step in run.steps) for run in (self.one, *self.ranks)]
        return all(count == counts[0] for count in counts)

    @cached_property
    def noises(self) -> tuple[str, ...]:
        """Kinds of noise that were met and not neutralised.

        Batch statistics count where a rank computed them of its share alone: one process and
        synchronised batch norm agree.
        """
        return tuple(noise for noise in NOISES if self._left(noise))

    @cached_property
    def undivided(self) -> tuple[str, ...]:
        """Draws that should have been the same in every process, and are of one side only.

        Their number or size follows from how many samples a process has.
        """
        ranks = {draw for run in self.ranks for draw in run.noise.shared}
        return tuple(sorted(ranks ^ set(self.one.noise.shared)))

    @cached_property
    def excuses(self) -> tuple[str, ...]:
        """The noises, unless something is wrong that no noise makes wrong."""
        first = self.divergence
        kinds = ["data", "initial", "learning rate"]
        kinds += [] if "augmentation" in self.noises else ["contents"]
        definite = (
            not self.same_steps
            or self.ranks_part is not None
            or bool(self.ranks_start_apart)
            or self.gradient_factor is not None
            or (first is not None and first.kind in kinds)
        )
        return () if definite else self.noises

    @cached_property
    def divergence(self) -> Divergence | None:
        """The first in time."""
        found = sorted(enumerate(self._divergences()), key=lambda each: (each[1].step, each[0]))
        return found[0][1] if found else None

    @cached_property
    def pairs(self) -> tuple[StepPair, ...]:
        return tuple(pair for run in self.ranks for pair in pairs.pairs(self.one, run))

    def _divergences(self) -> Iterator[Divergence]:
        """At most one of each kind, in the order in which one leads to the next."""
        if self.wrong_window is not None:
            step = self.wrong_window
            yield Divergence(step, "data", f"step {step}, data: the ranks take other samples")
        if self.contents.step is not None:
            step = self.contents.step
            yield Divergence(step, "contents", f"step {step}, data: {self.contents.text}")
        kinds = (("initial", "initial parameter", self.initial), ("loss", "loss", self.losses))
        yield from self._above(*kinds)
        yield from self._above(("gradient", "gradient", self.gradients))
        if self.rates_part is not None:
            step, rank = self.rates_part
            yield Divergence(step, "learning rate", f"step {step}, learning rate on rank {rank}")
        yield from self._above(("parameter", "parameter", self.parameters))

    def _above(self, *kinds: tuple[str, str, Sequence[Worst]]) -> Iterator[Divergence]:
        for kind, words, found in kinds:
            if worst := first_above(found, self.tolerance):
                size = f"relative difference {worst.difference:.3g}"
                where = "" if kind == "loss" else f" {worst.name} on rank {worst.rank}"
                yield Divergence(worst.step, kind, f"step {worst.step}, {words}{where}: {size}")

    def _left(self, noise: str) -> bool:
        """It was met, and not neutralised; of draws only those count that could not be."""
        met = any(getattr(run.noise, noise) for run in self._noisy(noise))
        if noise == "draws":
            return met or bool(self.undivided)
        return met and noise not in self.evidence.options.neutralise

    def _noisy(self, noise: str) -> tuple[RunRecord, ...]:
        return self.ranks if noise == "batchnorm" else (self.one, *self.ranks)


def together(shares: Iterable[Samples]) -> Samples:
    return sum(shares, Counter())


def first_above(found: Sequence[Worst], tolerance: float) -> Worst | None:
    return next((each for each in found if not each.difference <= tolerance), None)


def same_rates(wanted: Sequence[float], found: Sequence[float]) -> bool:
    """Both sides compute them alike: no more than the last bits may differ."""
    return len(wanted) == len(found) and all(
        abs(one - other) <= 1e-12 * max(abs(one), abs(other))
        for one, other in zip(wanted, found, strict=True)
    )


def _gradients(pair: StepPair, floors: dict[int, float]) -> tuple[float, ...]:
    floor = floors.get(pair.one.optimizer, 0.0)
    return distance.gradient_differences(pair.one.gradients, pair.other_gradients, floor)
