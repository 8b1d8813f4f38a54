"""Wrapped models in a run: which parts they have, what is called, what a loss was computed from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpify.ranks import words
from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run

CONTAINERS = frozenset({"torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"})
# What nn.Module answers without computing anything from its inputs.
PLAIN = frozenset(
    """train eval parameters named_parameters buffers named_buffers children named_children modules
    named_modules state_dict load_state_dict zero_grad requires_grad_ to cuda cpu float double half
    bfloat16 type apply get_submodule get_parameter add_module register_module register_parameter
    register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    share_memory extra_repr compile __repr__ no_sync items keys values append extend""".split()
)
_TAKES_APART = frozenset("modules named_modules children named_children".split())
# What has no gradient, whatever it was computed from.
_NONE_ADDED: Mapping[RankThing, list[RankValue]] = {}
_CUTS = frozenset("detach detach_ item tolist numpy argmax argsort bool long int data".split())


@dataclass(frozen=True, eq=False)
class Wrap:
    """One ``DistributedDataParallel(…)``: the call, the wrapper, the modules inside."""

    call: RankCall
    wrapper: RankThing
    inner: tuple[RankThing, ...]
    parts: frozenset[RankThing]

    def flag(self, name: str) -> bool | None:
        """An option that is off by default: True, False, or None if it is not known."""
        value = self.call.kwargs.get(name)
        if value is None and self.call.asked is not self.call:  # `wrap_model` hands its own on
            value = self.call.asked.kwargs.get(name)
        if value is None:
            return None if self.call.asked.star else False
        return bool(value.constant) if value.known else None

    @property
    def by_apex(self) -> bool:
        """Whether it is apex's, which has no ``no_sync()``."""
        name = ast.unparse(self.call.node.func)
        imported = rf"^\s*from apex\.parallel import .*\b{re.escape(name)}\b"
        text = self.call.module.source.text
        return name.startswith("apex.") or bool(re.search(imported, text, re.MULTILINE))

    def holds(self, thing: RankThing) -> bool:
        """Whether a thing is (a part of) the module inside."""
        seen: set[RankThing] = set()
        while thing not in seen:
            seen.add(thing)
            if thing in self.parts:
                return True
            if thing.kind != "attribute" or thing.receiver is None:
                return False
            thing = thing.receiver
        return False

    def covers(self, thing: RankThing) -> bool:
        """Whether a thing is the wrapper or (a part of) the module inside."""
        return thing is self.wrapper or self.holds(thing)


def wraps(run: Run) -> list[Wrap]:
    """The DDP wrappers of a run, in order."""
    found = []
    added = _added(run)
    for call in run.named(words.DDP):
        if call.result is None or not call.result.things:
            continue
        wrapper = call.result.things[0]
        module = wrapper.attrs.get("module")
        if module is None:
            continue
        inner = tuple(t for t in module.things if t.kind != "external")
        parts = frozenset(part for thing in inner for part in parts_of(thing, added))
        found.append(Wrap(call, wrapper, inner, parts))
    return found


def _added(run: Run) -> dict[RankThing, list[RankValue]]:
    """The values put into containers after those were made: ``heads[name] = head``."""
    found: dict[RankThing, list[RankValue]] = {}
    for call in run.methods("append", "extend", "update", "insert", "add_module"):
        assert call.receiver is not None
        for thing in call.receiver.things:
            if thing.name in CONTAINERS:
                found.setdefault(thing, []).extend(call.args)
    for store in run.stores:
        for thing in store.base.things if store.element else ():
            if thing.name in CONTAINERS:
                found.setdefault(thing, []).append(store.value)
    return found


def parts_of(
    thing: RankThing, added: Mapping[RankThing, list[RankValue]] = _NONE_ADDED
) -> Iterator[RankThing]:
    """A module, and the modules in it as far as its making shows them."""
    todo, seen = [thing], {thing}
    while todo:
        one = todo.pop()
        yield one
        held = list(one.attrs.values())
        if one.kind == "result" and one.name in CONTAINERS and one.call is not None:
            held += [*one.call.args, *added.get(one, ())]
        if one.kind == "instance" and one.call is not None:  # it keeps the modules it is given
            held += [*one.call.args, *one.call.kwargs.values()]
        for value in held:
            for below in _objects(value):
                if below not in seen and below.kind in ("result", "instance"):
                    seen.add(below)
                    todo.append(below)


def _objects(value: RankValue) -> Iterator[RankThing]:
    """The things that a value, or an element of it, is."""
    yield from value.things
    for item in value.items or ():
        yield from _objects(item)
    for _, item in value.keys or ():
        yield from _objects(item)


def forwards(run: Run, wrap: Wrap) -> list[RankCall]:
    """Calls of the wrapper that compute, with gradient."""
    called = run.methods("__call__", "forward")
    return [call for call in called if call.grad and receives(call, wrap.wrapper)]


def receives(call: RankCall, thing: RankThing) -> bool:
    """Whether a call is one of this object."""
    return call.receiver is not None and thing in call.receiver.things


def backwards(run: Run) -> list[RankCall]:
    """``loss.backward()``."""
    return list(run.methods("backward"))


def live(value: RankValue) -> set[RankThing]:
    """The things that a value was computed from with gradient, as far as can be told."""
    found = set(value.sources())
    for thing in list(found):
        cut = _cut(thing)
        if cut is not None and thing in found:
            found -= set(cut.sources())
            found.discard(thing)
    return found


def _cut(thing: RankThing) -> RankValue | None:
    """What a value without gradient was computed from."""
    if thing.kind == "attribute" and thing.name.rpartition(".")[2] == "data":
        return _only(thing.receiver)
    call = thing.call
    if thing.kind != "result" or call is None:
        return None
    if call.receiver is not None and call.method in _CUTS:
        return call.receiver
    if not call.grad and (call.method[:1].islower() or call.method == "__call__"):
        deps = frozenset(t for part in (*call.args, *call.kwargs.values()) for t in part.sources())
        return RankValue((None, None), (), deps)
    return None


def _only(thing: RankThing | None) -> RankValue | None:
    return RankValue((None, None), (thing,)) if thing is not None else None


def modules_of(value: RankValue) -> set[RankThing]:
    """The modules that a value is, is an attribute of, or was taken from: ``net.modules()``."""
    found = parameters_of(value)
    for thing in value.sources():
        call = thing.call
        if thing.kind != "result" or call is None or call.receiver is None:
            continue
        if call.method in _TAKES_APART:
            found.update(call.receiver.things)
    return found or set(value.things)


def reached(backward: RankCall, calls: list[RankCall]) -> list[RankCall]:
    """Those of these calls that a backward goes through."""
    assert backward.receiver is not None
    made = {thing.call for thing in live(backward.receiver) if thing.call is not None}
    return [call for call in calls if call in made]


def innermost(call: RankCall) -> object:
    """The loop that a call is directly in; calls outside of loops share one answer."""
    return call.loops[-1].node if call.loops else None


def exclusive(a: RankCall | Store, b: RankCall | Store) -> bool:
    """Whether two calls or assignments stand in different arms of one condition."""
    held = {guard.node: guard.holds for guard in a.guards}
    return any(held.get(guard.node, guard.holds) != guard.holds for guard in b.guards)


def comes_after(one: RankCall | Store, wrap: Wrap) -> bool:
    """Whether a thing comes about when the model is wrapped already."""
    return one.order > wrap.call.order and not exclusive(one, wrap.call)


def followed(wrap: Wrap, order: int, loops: tuple[object, ...], run: Run) -> bool:
    """Whether the wrapper trains after this moment, be it in the next round of a loop."""
    for call in forwards(run, wrap):
        if call.order > order or any(loop in call.loops for loop in loops):
            return True
    return False


def rewrapped(run: Run, wrap: Wrap, order: int) -> bool:
    """Whether the module inside is wrapped again after this moment."""
    return any(
        other.call.order > order and not set(other.inner).isdisjoint(wrap.inner)
        for other in wraps(run)
    )


def parameters_of(value: RankValue) -> set[RankThing]:
    """The modules whose ``parameters()`` a value was taken from."""
    found: set[RankThing] = set()
    for thing in value.sources():
        call = thing.call
        if thing.kind != "result" or call is None or call.receiver is None:
            continue
        if call.method in ("parameters", "named_parameters"):
            found.update(call.receiver.things)
    return found
