"""Summaries: a function that only computes is read once for each kind of arguments.

A dynamic time warping in a data set's augmentation is entered from every loader of every
experiment, thousands of times, and says the same each time. What is not read again is what cannot
say anything new: nothing of the training goes in (settings, constants, arrays from files), nothing
is written to outside of the call, and nothing comes out but arrays again. ::

    def distance(a, b): return np.linalg.norm(a - b)   # one summary, whatever arrays a and b are
    def distance(a, b): log.append(a); ...             # none: it leaves something behind
    def distance(a, b): return net(a) - net(b)         # none: a model is called

A setting or a global counts as far as the function looks at it: `args.dropout` may have changed in
between for a data set that asks for `args.window`. The constructor of a data set may ask any
library that trains nothing, as what it keeps is samples; each data set gets objects of its own.

What such a call records (a ``print``, a random draw) stands at the same sites, with the same kinds
of values and under the same kinds of conditions, as what its first reading recorded.

Events that only compute: they say nothing of training and leave nothing behind.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ddpify.facts.effects import EffectKind, effect_of
from ddpify.facts.events import Access, Bind, Call, Forward
from ddpify.facts.kinds import (
    CONTAINERS,
    LIBRARIES,
    NAMED,
    Tracked,
    again,
    circumstances,
    copied,
    instead,
    is_array,
    is_data,
    kind_of,
    made_in,
    of_name,
    unknowns,
)
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import NOTHING, OF_ONE_RANK, Kind, Thing, Value

MADE = (Kind.INSTANCE, Kind.UNKNOWN, Kind.INDEX, Kind.EXTERNAL, *CONTAINERS, *OF_ONE_RANK[1:])
MADE_BY_DATA = (*MADE, Kind.PROGRESS, Kind.LOGGER)
CONSTRUCTED = (Kind.DATASET, Kind.INSTANCE)
ATTEMPTS = 3  # an import in the body runs a module the first time

Reads = dict[tuple[int, str], tuple[Mapping[str, Value], Hashable]]


@dataclass(frozen=True)
class GivenKinds:
    """The arguments of a call; ``new`` is the object that it constructs, the first of them."""

    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    new: Thing | None

    @classmethod
    def to(
        cls, info: FunctionInfo, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> GivenKinds:
        """What a function is called with."""
        first = args[0].things if info.name == "__init__" and args else ()
        fresh = len(first) == 1 and first[0].kind in CONSTRUCTED and not first[0].attrs
        return cls(args, kwargs, first[0] if fresh else None)

    @property
    def values(self) -> tuple[Value, ...]:
        """Positional, then keyword."""
        return (*self.args, *self.kwargs.values())

    @property
    def constructs_data(self) -> bool:
        """Whether a data set is made."""
        return self.new is not None and self.new.kind is Kind.DATASET

    def kind(self) -> Hashable:
        """The kind of each. Raises Tracked."""
        rest = self.args if self.new is None else self.args[1:]
        given = tuple(kind_of(value) for value in rest)
        named = tuple((name, kind_of(value)) for name, value in self.kwargs.items())
        return (self.new and (self.new.kind, self.new.ref), given, named)


@dataclass(frozen=True)
class Summary:
    """What a function gave, of which given things, and the globals this rests on.

    Of a constructor, what the attributes are; of a data set's, the objects that it ``made``.
    """

    result: Value
    attributes: dict[str, Value]
    given: tuple[tuple[Thing, ...], ...]
    reads: Reads
    made: tuple[Thing, ...] = ()


@dataclass(eq=False)
class Recording:
    """A call that is read for the first time with this kind of arguments."""

    stack: tuple[object, ...]
    own: set[Thing]  # objects that are not known outside of the call yet
    data: bool = False  # the constructor of a data set: what it holds is data
    reads: Reads = field(default_factory=dict)
    computes: bool = True  # so far, nothing but


class Summaries:
    """The summaries of one reading, and the calls that may become some."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[Summary]] = {}  # by the kind, for each of what is read
        self._open: list[Recording] = []
        self._failed: dict[FunctionInfo, int] = {}

    # -- what a reading tells --------------------------------------------------------------

    def saw(self, event: Event) -> None:
        """An event; every call around it does what it does."""
        for recording in self._open:
            if recording.computes:
                recording.computes = is_computation(event, recording.own, recording.data)

    def made(self, thing: Thing) -> None:
        """A thing is made; an object of the project is what it then does."""
        for recording in self._open:
            if thing.kind is Kind.INSTANCE:
                recording.own.add(thing)
            recording.computes &= thing.kind in (MADE_BY_DATA if recording.data else MADE)

    def looked_up(self, names: Mapping[str, Value], name: str) -> None:
        """A global is read, or a setting: one of the names that an object has for its values."""
        if not self._open or (id(names), name) in self._open[-1].reads:
            return
        was = of_name(names.get(name))
        for recording in self._open:
            recording.reads.setdefault((id(names), name), (names, was))

    def cut_short(self) -> None:
        """A call is not entered: too deep, or recursive."""
        self._spoil()

    def entered(self, info: FunctionInfo) -> None:
        """A function is entered: what it closes over must be of the calls around it."""
        for recording in self._open:
            around = info.closure.stack if info.closure is not None else None
            if around is not None and around[: len(recording.stack)] != recording.stack:
                recording.computes = False

    def _spoil(self) -> None:
        for recording in self._open:
            recording.computes = False

    # -- summaries -------------------------------------------------------------------------

    def key(self, f: Frame | None, info: FunctionInfo, given: GivenKinds) -> Hashable | None:
        """The kind of a call, None when it has to be read."""
        if f is None or info.closure is not None or self._failed.get(info, 0) >= ATTEMPTS:
            return None
        if info not in self._failed:
            self._failed[info] = 0 if _leaves_names(info.node) else ATTEMPTS
            return self.key(f, info, given)
        try:
            defaults = tuple(v and kind_of(v) for v in (*info.defaults, *info.kw_defaults))
            return (info, given.kind(), defaults, circumstances(f))
        except Tracked:
            return None

    def replayed(self, key: Hashable, given: GivenKinds) -> Value | None:
        """What a call of this kind gives, None when it was not read yet."""
        summary = next((one for one in self._known.get(key, ()) if _hold(one.reads)), None)
        if summary is None:
            return None
        for recording in self._open:
            recording.reads.update(summary.reads)
        others = instead(summary.given, unknowns(given.values))
        others |= {thing: (again(thing),) for thing in summary.made}
        if given.new is not None:
            attributes = {name: copied(v, others) for name, v in summary.attributes.items()}
            given.new.attrs.update(attributes)
        return copied(summary.result, others)

    def begin(self, stack: tuple[object, ...], given: GivenKinds) -> Recording:
        """A call is read that may become a summary."""
        own = set() if given.new is None else {given.new}
        self._open.append(Recording(stack, own, given.constructs_data))
        return self._open[-1]

    def end(self, recording: Recording) -> None:
        """That call was read, or its reading broken off."""
        self._open.remove(recording)

    def keep(
        self,
        key: Hashable,
        recording: Recording,
        info: FunctionInfo,
        given: GivenKinds,
        result: Value,
    ) -> None:
        """Remember what a call gave, if it did nothing else."""
        if not recording.computes or not _only_gives(key, recording, given, result):
            self._failed[info] += 1
            return
        attributes = given.new.attrs if given.new is not None else {}
        others = unknowns(given.values)
        summary = Summary(
            copied(result, {}),
            {name: copied(value, {}) for name, value in attributes.items()},
            others,
            recording.reads,
            made_in(attributes.values(), others) if given.constructs_data else (),
        )
        self._known.setdefault(key, []).append(summary)


def _only_gives(key: Hashable, recording: Recording, given: GivenKinds, result: Value) -> bool:
    """Whether arguments and globals are what they were, and what comes out is data."""
    assert isinstance(key, tuple)
    try:
        same = given.kind() == key[1]
    except Tracked:
        return False
    out = (result, *(given.new.attrs.values() if given.new is not None else ()))
    others = unknowns(given.values)
    data = all(is_data(value, others, given.constructs_data) for value in out)
    return same and data and _hold(recording.reads)


def _leaves_names(node: ast.AST) -> bool:
    kinds = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await)
    return not any(isinstance(n, kinds) for n in ast.walk(node))


def _hold(reads: Reads) -> bool:
    """Whether the globals and settings are what they were."""
    return all(of_name(names.get(key[1])) == was for key, (names, was) in reads.items())


Event = Call | Bind | Access | Forward
BUILTINS = frozenset(
    """print len range enumerate zip min max abs sum int float str bool list tuple dict set sorted
    reversed isinstance round any all pow divmod slice type""".split()
)
# What a data set may not ask of a library while it is made, if that is to be samples.
FOLLOWED = ("torch.", "torchvision.", "random.", "builtins.", "ddpify.")
TRAINS = frozenset(
    """backward step zero_grad parameters named_parameters buffers named_buffers modules children
    state_dict load_state_dict seed manual_seed""".split()
)
METHODS = frozenset(
    """append extend insert copy astype reshape ravel flatten squeeze transpose swapaxes sum mean
    min max std var sort any all argmax argmin argsort cumsum clip round dot fill tolist format join
    split keys values items get fit transform fit_transform drop apply remove index""".split()
)


def is_computation(event: Event, own: set[Thing], data: bool = False) -> bool:
    """Whether an event says nothing of training, and leaves nothing behind but in ``own``.

    ``data``: in the constructor of a data set, where what a library gives is samples.
    """
    if isinstance(event, Forward):
        return False
    if isinstance(event, Bind):
        return True  # to a name; before one to an attribute comes an access
    if isinstance(event, Access):
        if event.stored:
            return set(event.base.things) <= own
        return all(_is_plain(t, own) for t in event.base.things)
    effect = effect_of(event)
    if effect is not None and effect.kind is EffectKind.DIRECTORY and data:
        return _is_given_plain(event, own)
    if effect is not None and effect.kind is not EffectKind.CONSOLE:
        return False
    if event.target is not None:
        return True  # a body speaks for itself
    return _is_given_plain(event, own) and (_computes(event) or (data and _gives_data(event)))


def _is_given_plain(call: Call, own: set[Thing]) -> bool:
    given = (*call.args, *call.kwargs.values(), call.receiver or NOTHING)
    return all(_is_plain(t, own) for value in given for t in value.things)


def _computes(call: Call) -> bool:
    """Whether a call of what is not a function of the project computes with what it is given."""
    package, _, tail = call.name.rpartition(".")
    made = [t for t in call.result.things if t.kind is Kind.UNKNOWN]
    if not call.name:  # `CubicSpline(steps, warps)(x)`
        return bool(made) and all(t.name.startswith(LIBRARIES) for t in made)
    if call.name.startswith("."):
        return tail in METHODS
    if not package:  # a class or an object of the project, unless it is not known
        return all(t.name != call.name for t in made)
    if package == "builtins":
        return tail in BUILTINS or _is_exception(tail)
    return call.name.startswith(LIBRARIES)


def _gives_data(call: Call) -> bool:
    """Whether a library gives a data set what it holds: ``h5py.File(path)["x"].astype(int)``."""
    if call.name.startswith("."):
        return call.name[1:] not in TRAINS
    iterates = call.name in ("builtins.iter", "builtins.next")
    return iterates or ("." in call.name and not call.name.startswith(FOLLOWED))


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, Exception)


def _is_plain(thing: Thing, own: set[Thing]) -> bool:
    kinds = (*CONTAINERS, *NAMED, Kind.FUNCTION, Kind.ARGUMENT, Kind.INDEX)
    return thing.kind in kinds or thing in own or is_array(thing)
