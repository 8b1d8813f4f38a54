"""The abstract values that flow through a training script while it is read.

A `Thing` is one object the program makes at one place (a model, a loader, a batch).
A `Value` is what an expression may be: some things, what it was computed from, and how it
relates to the samples of a batch (`Measure`), which decides how ranks may be combined.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from ddpify.source import Site


class Kind(Enum):
    """What a thing is to a training script."""

    MODEL = "model"
    WRAPPED = "wrapped model"
    CRITERION = "criterion"
    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    SCALER = "gradient scaler"
    DATASET = "data set"
    LOADER = "loader"
    SAMPLER = "sampler"
    BATCH = "batch"
    FORWARD = "model output"
    GRAPH = "what gradients go back through to a model output"
    STATE = "state dict"
    CHECKPOINT = "loaded checkpoint"
    DEVICE = "device"
    TRACKER = "tracker"
    FILE = "file"
    PROGRESS = "progress bar"
    LOGGER = "logger"
    ARGUMENT = "argument"
    MODULE = "module"
    FUNCTION = "function"
    CLASS = "class"
    INSTANCE = "instance"
    METHOD = "method"
    EXTERNAL = "external name"
    TUPLE = "tuple"
    DICT = "dict"
    ITERATOR = "iterator"
    RANK = "rank"
    CLOCK = "clock"
    RANDOM = "random"
    FILES = "what a file system answers"
    INDEX = "loop index"
    WORLD = "world size"
    LENGTH = "length of the longest of a rank's samples"
    TALLY = "count that differs between ranks"
    RATIO = "mean over such a count"
    UNREAD = "what unread code made of samples"
    AVERAGED = "a loss that is not known to be a mean, and is averaged over the ranks"
    COUPLED = "samples of a batch compared with each other"
    UNKNOWN = "unknown"

    __hash__ = object.__hash__  # that of an enumeration is of its name, each time it is looked up


# Differs between ranks whatever the samples are.
OF_ONE_RANK = (Kind.RANK, Kind.CLOCK, Kind.RANDOM, Kind.FILES)


class Measure(Enum):
    """How a number or tensor relates to the samples it was computed from."""

    UNIFORM = 0  # not computed from samples
    SAMPLES = 1  # one entry per sample along the batch axis
    COUNT = 2  # how many samples, or so many times a constant: the same on each rank
    SUM = 3  # a sum over samples
    MEAN = 4  # a mean over samples
    PER_COUNT = 5  # a constant divided by how many samples
    MIXED = 6  # computed from samples in a way that is not followed
    PICKED = 7  # entries of samples, how many depends on the samples
    RATIO = 8  # a mean over a count that depends on the samples
    ENTRY = 9  # of one sample, in a loop over those of a batch


def join_measure(a: Measure, b: Measure) -> Measure:
    """The measure of a value that is one or the other (`0` then `sum` is a running sum)."""
    if a is b or b is Measure.UNIFORM:
        return a
    if a is Measure.UNIFORM:
        return b
    return _WIDER.get(frozenset({a, b}), Measure.MIXED)


_WIDER = {
    frozenset({Measure.COUNT, Measure.SUM}): Measure.SUM,
    frozenset({Measure.SAMPLES, Measure.PICKED}): Measure.PICKED,
    frozenset({Measure.MEAN, Measure.RATIO}): Measure.RATIO,
}
_serial = itertools.count()


class Detail:
    """What is remembered of the things of some kind: see `ddpify.facts.details`."""


D = TypeVar("D", bound=Detail)


class Definition:
    """A function, class or module of the project, which a thing of that kind stands for."""


@dataclass(eq=False)
class Thing:
    """One object, identified by where (and in which call) it is made."""

    kind: Kind
    born: Site
    name: str = ""
    attrs: dict[str, Value] = field(default_factory=dict)
    items: tuple[Value, ...] | None = None
    keys: dict[object, Value] | None = None
    inner: Value | None = None  # what a wrapper, iterator, subset or progress bar stands for
    ref: Definition | None = None
    receiver: Thing | None = None
    part_of: Thing | None = None  # the model it is a part or a method of
    over: tuple[Value, ...] = ()  # what an iterator takes its elements from
    details: dict[type[Detail], Detail] = field(default_factory=dict)
    hops: list[tuple[Site, str]] = field(default_factory=list)
    serial: int = field(default_factory=lambda: next(_serial))
    alone: Value | None = field(default=None, init=False, repr=False)  # the value that is just it

    def detail(self, sort: type[D]) -> D | None:
        """What is remembered of this sort."""
        found = self.details.get(sort)
        return found if isinstance(found, sort) else None

    def describe(self, detail: Detail) -> None:
        """Remember a detail, instead of what was remembered of its sort."""
        self.details[type(detail)] = detail

    @property
    def stands_for(self) -> tuple[Thing, ...]:
        """The things in a wrapper, a bar or an iterator; the loaders behind a batch."""
        return self.inner.things if self.inner is not None else ()

    @property
    def unwrapped(self) -> Thing:
        """The model in a wrapper (the first that it may be); anything else is what it is."""
        inner = self.stands_for if self.kind is Kind.WRAPPED else ()
        return inner[0] if inner else self

    def hop(self, site: Site, how: str) -> None:
        """Remember a step this thing took, for the proof shown to the user."""
        if len(self.hops) < 12 and (site, how) not in self.hops:
            self.hops.append((site, how))

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.name} {self.born}>"


NO_CONST = object()
ZEROS = object()  # as a constant: an array of zeros, where sums begin
MAX_THINGS = 64
UNKNOWN_AXIS = -1
PERHAPS_ONE = -1
REST = "*"  # among the words of a call: what else is given by place, nobody knows how often
MORE = "**"  # among the keys of a dict, and the words of a call: there may be others


@dataclass(frozen=True)
class Value:
    """What an expression may evaluate to."""

    things: tuple[Thing, ...] = ()
    deps: frozenset[Thing] = frozenset()
    measure: Measure = Measure.UNIFORM
    const: Any = NO_CONST
    rows: bool = False  # one per sample of a batch, in their order; of a number: so many
    axis: int = 0  # that of the batch: 1 after `x.transpose(0, 1)`, UNKNOWN_AXIS where not known
    # So many batches end to end, each with rows: `torch.cat([view, other])`; one of a list that has
    # an entry for each sample, whosever it is, and of an entry that is a batch of one, `x[None]`.
    blocks: int = 0
    # How many axes it has: 0 where that is not known, and several; PERHAPS_ONE behind `squeeze()`.
    axes: int = 0
    setting: bool = field(default=False, compare=False)  # a constant that is another one tomorrow

    @property
    def known(self) -> bool:
        """True when the value is one Python constant."""
        return self.const is not NO_CONST

    @property
    def decided(self) -> bool:
        """True when a branch on it goes one way, whoever runs the program: ``USE_AUX = False`` at
        the top of a script is a setting, and both of its values are followed."""
        return self.known and not self.setting

    def of(self, *kinds: Kind) -> tuple[Thing, ...]:
        """The things of these kinds the value may be."""
        if not self.things:
            return ()
        return tuple(t for t in self.things if t.kind in kinds)

    def dep(self, *kinds: Kind) -> tuple[Thing, ...]:
        """The things of these kinds it was computed from (or is)."""
        found = {t for t in self.deps if t.kind in kinds} | set(self.of(*kinds))
        return tuple(sorted(found, key=lambda t: t.serial))

    def loaders(self) -> list[Thing]:
        """What gives the batches that it was computed from (or is)."""
        return [loader for batch in self.dep(Kind.BATCH) for loader in batch.stands_for]

    def all_deps(self) -> frozenset[Thing]:
        """Everything the value is or was computed from."""
        return self.deps | frozenset(self.things)

    def but(self, **changes: Any) -> Value:
        """A copy with fields replaced."""
        return replace(self, **changes)

    def reduced(self) -> Value:
        """The value after the ranks combined theirs: no longer of one rank's batches."""
        deps = frozenset(t for t in self.deps if t.kind not in (Kind.BATCH, Kind.COUPLED))
        return replace(self, deps=deps, measure=Measure.UNIFORM, rows=False, blocks=0)


NOTHING = Value()


def constant(value: object) -> Value:
    """The value of a literal."""
    return Value(const=value)


def one(thing: Thing, deps: Iterable[Thing] = (), measure: Measure = Measure.UNIFORM) -> Value:
    """The value that is exactly this thing."""
    if deps or measure is not Measure.UNIFORM:
        return Value((thing,), frozenset(deps), measure)
    if thing.alone is None:
        thing.alone = Value((thing,))
    return thing.alone
