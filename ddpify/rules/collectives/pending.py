"""What happens to a tensor between an asynchronous call and the wait for it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.aliases import is_container
from ddpify.ranks.collective import collective
from ddpify.ranks.events import Exit, Store, Touch
from ddpify.ranks.inflight import (
    BATCH,
    RECEIVES,
    Models,
    filled,
    flown,
    key_of,
    maker,
    models_of,
    overlap,
    receiving,
    sent,
    spelled,
)
from ddpify.ranks.iterating import stands_for_many
from ddpify.ranks.model import RANK0, RANK1, RankCall, RankGuard, RankLoop, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.collectives.in_models import uses
from ddpify.rules.shared.placing import backends
from ddpify.rules.shared.syntax import scope_nodes
from ddpify.rules.shared.written import holds
from ddpify.site import Site

# Methods that read a tensor's numbers, and functions that do.
_READING: Final = frozenset(
    "item tolist cpu numpy clone mean sum max min norm abs add sub mul div argmax any all double"
    " float half exp log sqrt square pow matmul std var".split()
)
_FUNCTIONS: Final = frozenset(
    f"builtins.{name}" for name in "print float int bool str sum max min abs sorted".split()
)
_MODULES: Final = ("torch", "torch.nn.functional", "torch.linalg", "numpy", "numpy.linalg")
_FORM: Final = frozenset("is_tensor numel is_floating_point typename".split())
# Calls that wait, be it for everything.
WAITS: Final = frozenset(
    "wait Wait Waitall Waitany Waitsome Test Testall synchronize wait_stream is_completed result"
    " barrier Barrier wait_all wait_event wait_tensor".split()
)
_IN_PLACE: Final = ("fill", "sort")  # of NumPy's arrays
_COLLECTING: Final = frozenset("append extend add put insert appendleft setdefault".split())
_FILLS: Final = frozenset({f"{words.DIST}recv", ".Recv"}) | RECEIVES
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MODULE: Final = "torch.nn.Module"
_OF_MODULE: Final = frozenset("register_buffer register_parameter load_state_dict apply".split())
_STOP: Final = object()

Event = RankCall | Store | Touch


def touched(run: Run, call: RankCall) -> Iterator[tuple[Site, bool]]:
    """Where the tensor of an asynchronous call is changed before the wait for it, or read if the
    call fills it (which is told, too): later on, or in the next round of the loop around it."""
    given = [(value, True) for value in filled(call)] + [(value, False) for value in sent(call)]
    found = ((_touched(run, call, *one), one[1]) for one in given if call.result is not None)
    yield from islice(((site, fills) for site, fills in found if site is not None), 1)


def _touched(run: Run, call: RankCall, value: RankValue, fills: bool) -> Site | None:
    apart = not key_of(value, call.ranks) or _waits_on_some(run, call)
    found = (
        _touched_on(run, call, value, fills and not (apart and _is_root(call, one)), one)
        for one in ((call.ranks & RANK0, call.ranks & RANK1) if apart else (call.ranks,))
    )
    return next((site for site in found if site is not None), None)


def _waits_on_some(run: Run, call: RankCall) -> bool:
    """Whether some ranks alone wait for what all have begun."""
    waits = (one for one in run.methods("wait") if one.ranks & call.ranks != call.ranks)
    return any(call in (t.call for v in one.inputs for t in v.things) for one in waits)


def _is_root(call: RankCall, ranks: int) -> bool:
    """Whether this rank only sends: the root of a broadcast."""
    src = call.arg(1, "src") if call.method == "broadcast" else None
    return src is not None and bool(ranks) and src.atoms[ranks >> 1] == ranks >> 1


def _touched_on(run: Run, call: RankCall, value: RankValue, fills: bool, ranks: int) -> Site | None:
    key = key_of(value, ranks) if ranks else ""
    if not key or not _is_one(value, call, ranks):
        return None
    if fills and any(_receives_again(one, value, ranks) for one in receiving(call, value)):
        return call.site
    flight = _Flight(run, call, key, fills, value, ranks, models_of(value))
    events = run.once(_timeline)
    after = [one for one in events if one.order > call.order]
    found = flight.first(after)
    if isinstance(found, Site):
        return found
    again = (_again(flight, value, loop, events) for loop in rounds_of(run, call))
    return next((site for site in again if site is not None), None)


def _again(
    flight: _Flight, value: RankValue, loop: RankLoop, events: Iterable[Event]
) -> Site | None:
    """Where the next round of a loop touches what this one has begun with, and has not ended."""
    call = flight.call
    rounds = [one for one in events if is_in(one, loop, call)]
    ended = any(one.order > call.order and flight.judge(one) is not None for one in rounds)
    if ended or not _lasts(flight.run, value, call, loop):
        return None
    found = flight.first(one for one in rounds if one.order < call.order)
    if found is None and spelled(call) in RECEIVES:
        return call.site  # the next round receives into it, too
    return found if isinstance(found, Site) else None


def rounds_of(run: Run, call: RankCall) -> list[RankLoop]:
    """The loop around a call, and those that were read as one round that stands for several: over
    a list that a comprehension made."""
    once = (one for one in run.loops if one.over is not None and stands_for_many(one.over))
    return [*(one for one in once if is_in(call, one, call)), *call.loops[-1:]]


def is_in(event: Event, loop: RankLoop, call: RankCall) -> bool:
    """Whether an event is of the round of a loop in which the call is made."""
    if loop in _loops(event):
        return True
    way = event.here.stack if isinstance(event, Touch) else event.stack
    within = [one for one in call.way if holds(loop.node, one.node)]
    if loop in call.loops or not within or not isinstance(loop.node, ast.For):
        return False
    frames = within[0].stack
    inner = way[len(frames)].node if len(way) > len(frames) else event.node
    return way[: len(frames)] == frames and any(holds(one, inner) for one in loop.node.body)


def _receives_again(call: RankCall, value: RankValue, ranks: int) -> bool:
    """Whether a comprehension, which has one tensor from before it, receives into that each time:
    ``[irecv(box, src=one) for one in range(1, world)]``."""
    made = maker(value, ranks)
    if made is None or "@" in key_of(value, ranks).partition("[")[2]:
        return False
    around = [node for node in scope_nodes(call) if _comprehends(node, call.node)]
    return bool(around) and not any(holds(node, made.node) for node in around)


def _comprehends(node: ast.AST, call: ast.Call) -> bool:
    """Whether a comprehension makes the call for each of its elements, which are several."""
    if not isinstance(node, _COMPREHENSIONS) or isinstance(node, ast.GeneratorExp):
        return False
    over = node.generators[0].iter
    one = isinstance(over, (ast.Tuple, ast.List)) and len(over.elts) < 2
    return not one and holds(node, call) and not holds(over, call)


def _timeline(run: Run) -> list[Event]:
    """All that happens in a run, in order."""
    events: list[Event] = [*run.calls, *(s for s in run.stores if s.element), *run.touches]
    return sorted(events, key=lambda one: one.order)


def _is_one(value: RankValue, call: RankCall, ranks: int) -> bool:
    """Whether it is one tensor where the call is made: not one of those that a comprehension, or
    a loop that has ended, has made."""
    made = maker(value, ranks)
    if made is None:
        return True
    comprehended = any(
        isinstance(node, _COMPREHENSIONS) and holds(node, one.node) and not holds(node, call.node)
        for one in made.way
        if one not in call.way
        for node in scope_nodes(one)
    )
    return not comprehended and made.loops == call.loops[: len(made.loops)]


def _lasts(run: Run, value: RankValue, call: RankCall, loop: RankLoop) -> bool:
    """Whether it is the same tensor in each round of a loop: made before, and no part of it that
    the round chooses."""
    made, part = maker(value, call.ranks), key_of(value, call.ranks).partition("[")[2]
    if made is None:
        return _is_kept(run, value, call, loop)
    chosen = "@" in part and not part.startswith("0:")  # each part from the first row on has that
    return not chosen and not is_in(made, loop, call)


def _is_kept(run: Run, value: RankValue, call: RankCall, loop: RankLoop) -> bool:
    """Whether it is what an object has kept since before the loop, in which nothing is put there:
    ``self.buffer``."""
    thing = value.things[0] if len(value.things) == 1 else None
    owner = thing.receiver if thing is not None and thing.kind == "attribute" else None
    if thing is None or owner is None or owner.call is None:
        return False
    name = thing.name.rpartition(".")[2]
    if owner.cls is None or owner.cls.method(name) is not None:
        return False
    stored = any(one.key == name and is_in(one, loop, call) for one in run.stores)
    return not is_in(owner.call, loop, call) and not stored


def _loops(event: Event) -> tuple[RankLoop, ...]:
    return event.here.loops if isinstance(event, Touch) else event.loops


def _guards(event: Event) -> tuple[RankGuard, ...]:
    return event.here.guards if isinstance(event, Touch) else event.guards


@dataclass(frozen=True)
class _Flight:
    """A tensor from the call that sends or fills it on."""

    run: Run
    call: RankCall
    key: str
    fills: bool  # or only sends it
    value: RankValue
    ranks: int
    models: Models = frozenset()  # whose parameter it is

    def first(self, events: Iterable[Event]) -> object:
        """Where it is touched first; something else where it is, or may be, waited for before."""
        return next((one for one in map(self.judge, events) if one is not None), None)

    def judge(self, event: Event) -> object:
        """A place if the event touches the tensor, something else if it may wait for it."""
        if not event.ranks & self.ranks:
            return None
        if isinstance(event, RankCall) and self._may_wait(event):
            return _STOP
        comes = set(_guards(event)) <= set(self.call.guards)
        return event.site if comes and self._touches(event) and not self._left(event) else None

    def _left(self, event: Event) -> bool:
        """Whether who makes the call has left before the event: ``if later: return isend(x)``."""
        if event.order < self.call.order:
            return False  # of the next round
        since = (e for e in self.run.exits if self.call.order < e.order < event.order)
        return any(
            set(one.guards) <= set(self.call.guards) and self._passes_by(one, event)
            for one in since
        )

    def _passes_by(self, leave: Exit, event: Event) -> bool:
        """Whether the event belongs to the round, or the call of a function, that is left."""
        if leave.kind in ("break", "continue"):
            here = leave.loops == self.call.loops
            return here and (not leave.loops or leave.loops[-1] in _loops(event))
        stack = event.here.stack if isinstance(event, Touch) else event.stack
        frames = (n for n, one in enumerate(self.call.way) if one.function is leave.function)
        return any(stack[:frame] == self.call.stack[:frame] for frame in frames)

    def _may_wait(self, event: RankCall) -> bool:
        if event.method in WAITS:
            return not self._waits_for_others(event)
        if event.target is not None:
            return event.target.place not in self.run.entered
        given = {thing for value in event.inputs for thing in value.sources()}
        return event.method not in _COLLECTING and any(one in given for one in self._handles)

    @property
    def _handles(self) -> tuple[RankThing, ...]:
        return self.call.result.things if self.call.result is not None else ()

    def _waits_for_others(self, event: RankCall) -> bool:
        """Whether it surely waits for other calls alone, none of which ends after this one."""
        waited = [thing for value in event.inputs for thing in value.sources()]
        begun = [t.call for t in waited if t.call is not None and flown(t.call)]
        own = any(one is self.call for one in begun)
        if own and on_gloo(self.run) and is_of_one(event, self.call):
            return True
        shared = collective(self.call)
        group = shared.group if shared is not None else None
        ordered = (
            shared is not None
            and not on_gloo(self.run)
            and (group is None or all(_group(one) in (group, None) for one in begun))
        )  # NCCL does those of a group one by one
        if not begun and _is_of_earlier(event, self.call):
            return True
        return (
            bool(begun)
            and not own
            and not (ordered and any(one.order > self.call.order for one in begun))
        )

    def _touches(self, event: Event) -> bool:
        if isinstance(event, Store):
            listed = is_container(event.base) or is_container(event.value)  # not a tensor's part
            return not listed and self._is_it(event.base)
        if isinstance(event, Touch):
            return (self.fills or event.changes) and overlap(event.key, self.key)
        if self.models and uses(event, self.value, self.models):
            return True
        return self._is_changed_by(event) or (self.fills and self._is_read_by(event))

    def _is_it(self, value: RankValue) -> bool:
        return overlap(key_of(value, self.ranks), self.key)

    def _is_changed_by(self, event: RankCall) -> bool:
        """``x.zero_()``, ``dist.irecv(x)``."""
        own = any(self._is_it(value) for value in _own(event))
        name = event.method
        if own:
            inplace = name.endswith("_") and not name.startswith("_")
            inplace = inplace or name in _IN_PLACE
            return inplace and name not in ("requires_grad_", "share_memory_")
        received = event.arg(0, "tensor") if {event.name, f".{name}"} & _FILLS else None
        into = received or event.kwargs.get("out")  # ``rng.standard_normal(out=noise)``
        return into is not None and self._is_it(into)

    def _is_read_by(self, event: RankCall) -> bool:
        """``x.mean()``, ``float(x)``, ``torch.cat([x, y])``, ``model(x)``."""
        if any(self._is_it(value) for value in _own(event)):
            return event.method in _READING
        of, _, last = event.name.rpartition(".")
        library = of in _MODULES and not last.endswith("_like") and last not in _FORM
        forward = last == "__call__" or (of == _MODULE and last not in _OF_MODULE)
        if not library and not forward and event.name not in _FUNCTIONS:
            return False
        return any(self._is_it(value) for value in _flat(event.given))


def _group(call: RankCall) -> RankValue | None:
    shared = collective(call)
    return shared.group if shared is not None else None


def on_gloo(run: Run) -> bool:
    """Whether the program says that it communicates by gloo, which does several things at once."""
    return backends(run) == {"gloo"}


def is_of_one(wait: RankCall, call: RankCall) -> bool:
    """Whether it waits for one of several handles, which is not this one's: ``works[0].wait()``."""
    node = wait.node.func.value if isinstance(wait.node.func, ast.Attribute) else None
    place = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(place, ast.UnaryOp) and isinstance(place.op, ast.USub):
        place = place.operand
    if not isinstance(place, ast.Constant) or not isinstance(place.value, int):
        return False
    return call.name == BATCH  # of gloo, a handle for each message


def _is_of_earlier(wait: RankCall, call: RankCall) -> bool:
    """Whether it waits for a handle of an earlier round: ``if last: last.wait()`` before
    ``last = this``, where `this` is what the call has given."""
    node = wait.node.func.value if isinstance(wait.node.func, ast.Attribute) else None
    if wait.function is not call.function or not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    made = [one for one in scope_nodes(call) if isinstance(one, ast.Assign)]
    names = [ast.unparse(one.targets[0]) for one in made if one.value is call.node]
    handed = [one for one in made if ast.unparse(one.targets[0]) == ast.unparse(node)]
    in_loop = [one for one in handed if not isinstance(one.value, ast.Constant)]
    return bool(names and in_loop) and all(
        ast.unparse(one.value) in names and one.lineno > wait.node.lineno > call.node.lineno
        for one in in_loop
    )


def _own(call: RankCall) -> tuple[RankValue, ...]:
    return (call.receiver,) if call.receiver is not None else ()


def _flat(values: Iterable[RankValue]) -> Iterator[RankValue]:
    """Values, and the elements of those that are lists."""
    for value in values:
        yield value
        yield from value.items or ()
