"""What the standard library's containers and tools make of things."""

from __future__ import annotations

from typing import Final, cast

from ddpify.facts import containers, fields, lookups
from ddpify.facts.details import Factory
from ddpify.facts.events import Call
from ddpify.facts.iteration import iterates
from ddpify.facts.joining import computed, join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, Kind, Thing, Value, one

LISTS: Final = frozenset({"collections.deque", "queue.Queue", "queue.SimpleQueue"})
ZIPS: Final = frozenset({"itertools.product", "itertools.zip_longest"})
STANDARD: Final = frozenset(
    {
        *LISTS,
        *ZIPS,
        "builtins.dict.fromkeys",
        "collections.ChainMap",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.namedtuple",
        "dataclasses.asdict",
        "dataclasses.replace",
        "functools.reduce",
        "importlib.import_module",
        "itertools.chain.from_iterable",
        "itertools.repeat",
    }
)


def call_standard(m: Machine, f: Frame, name: str, call: Call) -> Value:
    """The result of one of ``STANDARD``."""
    tail = name.rpartition(".")[2]
    if name in LISTS:
        return _list(m, f, call)
    if name in ZIPS:
        parts = tuple(m.element_of(f, given) for given in call.args)
        return iterates(m, f, call, one(Thing(Kind.TUPLE, call.site, items=parts)))
    if tail in ("OrderedDict", "ChainMap", "defaultdict", "fromkeys"):
        return _dict(m, f, tail, call)
    if tail == "namedtuple":
        return fields.named_tuple(m, f, call.args, call.kwargs, call.site) or computed(*call.args)
    if tail == "import_module":
        return _module(m, f, call)
    return _other(m, f, tail, call)


def _list(m: Machine, f: Frame, call: Call) -> Value:
    items = [t.items for v in call.args for t in v.things if t.inner is None]
    if not call.args or (len(items) == 1 and items[0] is not None):
        return one(Thing(Kind.TUPLE, call.site, items=items[0] if items else ()))
    return one(Thing(Kind.ITERATOR, call.site, inner=m.element_of(f, call.args[0])))


def _dict(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    if tail == "defaultdict":
        made = containers.dict_of(call.arg(1, ""), call.kwargs, call.site)
        if call.args:
            made.things[0].describe(Factory(call.args[0]))
        return made
    if tail == "fromkeys":
        names = [i for v in call.args[:1] for t in v.things for i in t.items or ()]
        value = call.args[1] if len(call.args) > 1 else NOTHING
        keys: dict[object, Value] = {i.const: value for i in names if i.known}
        return one(Thing(Kind.DICT, call.site, keys=keys or {0: value}))
    parts = [containers.dict_of(given, {}, call.site) for given in reversed(call.args)]
    merged = containers.dict_of(None, call.kwargs, call.site)
    for part in parts:  # the first of a chain wins
        assert merged.things[0].keys is not None
        merged.things[0].keys.update(part.things[0].keys or {})
    return merged


def _module(m: Machine, f: Frame, call: Call) -> Value:
    name = call.args[0].const if call.args else None
    if not isinstance(name, str):
        late = m.make(Kind.UNKNOWN, f, call.site, call.name)
        found = lookups.modules(m, f, call)
        return found if found.things else one(late, computed(*call.args).deps)
    dotted = name.lstrip(".")
    if dotted != name:
        return m.import_from(f, dotted, len(name) - len(dotted), call.site)
    return m.import_module(f, name, call.site)


def _other(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    first = call.args[0] if call.args else NOTHING
    if tail == "reduce":
        element = m.element_of(f, call.args[1]) if len(call.args) > 1 else NOTHING
        return m.apply(f, first, (join(element, *call.args[2:]), element), call.site)
    if tail == "repeat":
        return iterates(m, f, call, first)
    if tail == "from_iterable":
        return iterates(m, f, call, m.element_of(f, m.element_of(f, first)))
    objects = first.of(Kind.INSTANCE)
    if tail == "replace" and objects:
        return join(*[fields.changed(thing, call.kwargs, call.site) for thing in objects])
    if tail == "asdict" and objects:
        keys = [cast("dict[object, Value]", dict(thing.attrs)) for thing in objects]
        return join(*[one(Thing(Kind.DICT, call.site, keys=each)) for each in keys])
    return computed(*call.args, *call.kwargs.values())
