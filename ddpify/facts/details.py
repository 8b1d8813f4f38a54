"""Details of things: what is remembered of the things of one kind, beside what all have.

Each sort of detail is a class, asked for by that class: ``loader.detail(LoaderArguments)``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddpify.facts.events import Call, Where
from ddpify.facts.values import Detail, Kind, Measure, Thing, Value
from ddpify.source import Site


@dataclass(frozen=True, eq=False)
class MakingCall(Detail):
    """The call that made a thing, and what its arguments were computed from."""

    call: Call
    deps: frozenset[Thing] = frozenset()


def call_that_made(thing: Thing) -> Call | None:
    made = thing.detail(MakingCall)
    return made.call if made is not None else None


def made_by(thing: Thing, call: Call, deps: frozenset[Thing] = frozenset()) -> None:
    """Remember the last call that made a thing, and what any such call was given."""
    before = thing.detail(MakingCall)
    thing.describe(MakingCall(call, before.deps | deps if before is not None else deps))


@dataclass(frozen=True, eq=False)
class LoaderArguments(Detail):
    """What a ``DataLoader`` was given; None where it was not."""

    dataset: Value | None
    batch_size: Value | None
    shuffle: Value | None
    sampler: Value | None
    batch_sampler: Value | None
    drop_last: Value | None

    @property
    def of_one(self) -> bool:
        """Whether the program says, and not by a setting, that a batch is one sample."""
        size, batches = self.batch_size, self.batch_sampler
        asked = size is None or (size.decided and size.const == 1)
        plain = batches is None or batches.const is None
        return asked and plain and self is not NO_ARGUMENTS

    @property
    def samplers(self) -> tuple[Value, ...]:
        given = (self.sampler, self.batch_sampler)
        return tuple(value for value in given if value is not None)


NO_ARGUMENTS = LoaderArguments(None, None, None, None, None, None)


def loader_arguments(loader: Thing) -> LoaderArguments:
    """What a loader was given: nothing that is known, where no call was read."""
    return loader.detail(LoaderArguments) or NO_ARGUMENTS


def measure_of(batch: Thing) -> Measure:
    """Of a batch of one, all is of one sample, whatever is computed."""
    loaders = batch.stands_for
    single = loaders and all(loader_arguments(one).of_one for one in loaders)
    return Measure.ENTRY if single else Measure.SAMPLES


def is_of_one(value: Value) -> bool:
    """Whether it is of one sample because the batches are: a mean over them, too."""
    return value.measure is Measure.ENTRY and is_of_singles(value)


def is_of_singles(value: Value) -> bool:
    """Whether it comes from batches, and all of them are of one sample."""
    batches = value.dep(Kind.BATCH)
    return bool(batches) and all(measure_of(batch) is Measure.ENTRY for batch in batches)


def part_of(batch: Thing, axis: int = 0) -> Value:
    """What a batch has for each of its samples."""
    return Value((), frozenset({batch}), measure_of(batch), rows=True, axis=axis)


@dataclass(frozen=True, eq=False)
class Optimized(Detail):
    """The parameters that an optimizer steps."""

    parameters: Value


@dataclass(frozen=True, eq=False)
class Reduction(Detail):
    """How a criterion makes one number of a batch's losses."""

    measure: Measure


@dataclass(frozen=True, eq=False)
class Partial(Detail):
    """The arguments that a ``functools.partial`` has given to a callable."""

    args: tuple[Value, ...]
    kwargs: dict[str, Value]


@dataclass(frozen=True, eq=False)
class Factory(Detail):
    """What a ``defaultdict`` calls for an entry that it lacks."""

    makes: Value


@dataclass(frozen=True, eq=False)
class AnyAttribute(Detail):
    """What ``setattr`` stored under a name that is not known."""

    value: Value


@dataclass(frozen=True, eq=False)
class OfSamples(Detail):
    """What an object of an unread class was given of samples, and may tell again."""

    deps: frozenset[Thing]


@dataclass(frozen=True, eq=False)
class Bypass(Detail):
    """The call of a model's method or part, which its wrapper does not see."""

    call: Call


@dataclass(frozen=True, eq=False)
class Wrapper(Detail):
    """The qualified name of what wraps a model, and when it does."""

    name: str
    order: int = 0


class Divided(Detail):
    """A loader stands for batches that every rank makes, and takes its share of."""


@dataclass(frozen=True, eq=False)
class Collated(Detail):
    """Along which axis the samples lie in each part of a loader's batches; along the first else."""

    axes: tuple[int, ...]


class SharesBatches(Detail):
    """A loader gives each rank its part of every batch: it was given to ``share_batches``."""


class UnreadOutput(Detail):
    """An output of a model that nobody reads: one tensor, or a list of them."""


class OpenLoss(Detail):
    """An output of a model may be a loss that it computes, which is not followed."""


class NumbersRows(Detail):
    """An index counts the samples of a batch, not the passes of a loop."""


class NumbersPasses(Detail):
    """A progress bar counts (``trange``), it goes over nothing."""


class OpenForward(Detail):
    """A module without parameters: a call of it is read as a call of its ``forward``."""


@dataclass(frozen=True, eq=False)
class Tally(Detail):
    """A count that differs between ranks: ``form_of`` what it was before this expression.

    ``max(n, 1)`` is a form ``of`` the expression ``n``, bounded by the ``floor`` ``1``.
    """

    form_of: tuple[Thing, ...]
    where: Where
    of: Site | None = None
    floor: Site | None = None
    rounded: bool = False


@dataclass(frozen=True, eq=False)
class CountMean(Detail):
    """A mean over a count that differs between ranks.

    Either over ``count``, which stands ``at`` a place of the program, or by a ``call`` of a
    criterion that was ``made`` there, or of a model whose loss has as many ``terms`` as that says.
    """

    where: Where
    count: Value | None = None
    at: Site | None = None
    call: Call | None = None
    made: Call | None = None
    terms: str = ""


@dataclass(frozen=True, eq=False)
class Coupling(Detail):
    """The circumstances in which a loss compares samples of a batch, or perhaps does."""

    where: Where
    certain: bool


@dataclass(frozen=True, eq=False)
class FirstEntry(Detail):
    """What a list begins with of which the rest is not known: ``(len(x), *shape)``."""

    value: Value
