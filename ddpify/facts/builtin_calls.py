"""What Python's builtins return: len, enumerate, zip, getattr and the like.

What the standard library's containers and tools make of things.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final, cast

from ddpify.facts import containers, counts, dealing, fields, instances, lookups, measures, rows
from ddpify.facts.details import AnyAttribute, Factory, NumbersRows
from ddpify.facts.events import Call
from ddpify.facts.iteration import iterates
from ddpify.facts.joining import computed, flat_deps, flat_measure, join, listed, told
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.unread import is_bound_nowhere
from ddpify.facts.values import NO_CONST, NOTHING, Kind, Measure, Thing, Value, constant, one

SAME_NUMBER = frozenset({"float", "int", "abs", "str", "round"})


ITERATION = frozenset(
    "enumerate zip iter reversed list tuple sorted set frozenset next map filter".split()
)
TEXTS = frozenset({"str", "repr", "format"})
SCOPES = frozenset({"globals", "locals"})
APPLIED = (Kind.FUNCTION, Kind.METHOD, Kind.CLASS, Kind.EXTERNAL)
PLAIN = frozenset("isinstance hasattr callable issubclass print".split())


def call_builtin(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    """The result of a builtin, None when it is not one of these."""
    if tail == "open":
        return one(m.make(Kind.FILE, f, call.site, "open"))
    if tail in ITERATION:
        return _iteration(m, f, tail, call)
    if tail == "dict":
        return containers.dict_of(call.arg(0, ""), call.kwargs, call.site)
    if tail in SCOPES:
        space = f.module.globals if tail == "globals" else f.env
        return one(Thing(Kind.DICT, call.site, keys=cast("dict[object, Value]", space)))
    if tail == "isinstance" and len(call.args) == 2:
        return instances.is_instance(*call.args) or NOTHING
    if tail in PLAIN or is_bound_nowhere(call):
        return NOTHING
    if tail == "range":
        return _range(m, f, call)
    return _of_argument(m, f, tail, call) if call.args else None


def _of_argument(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    first = call.args[0]
    if tail == "len":
        return _length(m, f, first, call)
    if tail in TEXTS and (said := _said(first)) is not None:
        return said
    if tail in SAME_NUMBER:
        same = counts.kept(m, f, first, tail, call)
        return same or computed(*call.args, measure=first.measure)
    if tail in ("max", "min") and len(call.args) > 1:
        bounded = counts.larger(m, f, call) if tail == "max" else None
        return bounded or _extreme(m, call, join(*call.args).but(const=NO_CONST))
    if tail == "sum":
        element = m.element_of(f, first)
        each = first.rows and element.measure is Measure.ENTRY  # a term per sample
        whole = computed(first, element, measure=Measure.SUM if each else element.measure)
        return counts.tally(m, f, whole, call.site) if each else whole
    if tail == "getattr" and len(call.args) > 1:
        if call.args[1].decided or (call.args[1].known and not first.of(Kind.MODULE)):
            return _getattr(m, f, call)
        return lookups.members(m, call) or lookups.any_member(m, first, call.site)
    if tail == "eval":
        return lookups.evaluated(m, f, call)
    if tail in ("max", "min") and first.of(*containers.LISTS) and "key" in call.kwargs:
        return m.element_of(f, first)
    return _of_object(m, f, tail, call)


def _said(value: Value) -> Value | None:
    """What the text of a container or of an object is made of: all numbers in it."""
    text = told(value)
    if text is value and value.of(*CONTAINERS) and flat_measure(value) is not Measure.UNIFORM:
        return computed(value, measure=Measure.MIXED)
    return None if text is value else text


def _extreme(m: Machine, call: Call, value: Value) -> Value:
    """The largest of means is no mean: that of the ranks' largest is another number.

    What is kept between two numbers (``min(max(k, 0), 1)``) counts as what it was.
    """
    nodes = [m.tree(site.path).expression(site) for site in call.arg_sites]
    bounds = any(isinstance(node, (ast.Constant, ast.UnaryOp)) for node in nodes)
    added = value.measure in (Measure.SUM, Measure.MEAN, Measure.RATIO)
    return value.but(measure=Measure.MIXED) if added and not bounds else value


def _of_object(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    """What asks an object for what it is, or changes it."""
    first = call.args[0]
    if tail == "setattr" and len(call.args) == 3:
        return _setattr(f, call)
    if tail == "vars":
        return _attribute(m, f, call, first, "__dict__")
    if tail == "type" and len(call.args) == 1 and _has_class(first):
        return _attribute(m, f, call, first, "__class__")
    if tail == "type" and len(call.args) == 1 and flat_measure(first) is not Measure.UNIFORM:
        return NOTHING
    if tail == "property":
        return _property(m, call)
    if tail == "__import__" and isinstance(first.const, str):
        return m.import_module(f, first.const.split(".")[0], call.site)
    return None


def _has_class(value: Value) -> bool:
    models = [t for t in value.of(Kind.MODEL) if isinstance(t.ref, ClassInfo)]
    return bool(value.of(Kind.INSTANCE)) or (bool(models) and len(models) == len(value.things))


def _property(m: Machine, call: Call) -> Value:
    """``loader = property(get, set)`` in a class."""
    mark = one(m.external("builtins.property", call.site))
    setters = [t.ref for value in call.args[1:2] for t in value.things]
    made = []
    for thing in call.args[0].things:
        if isinstance(thing.ref, FunctionInfo):
            own = next((s for s in setters if isinstance(s, FunctionInfo)), None)
            info = replace(thing.ref, decorators=(*thing.ref.decorators, mark), setter=own)
            made.append(one(replace(thing, ref=info)))
    return join(*made)


def _setattr(f: Frame, call: Call) -> Value:
    """``setattr(x, name, value)``; where the name is not known any attribute may be meant."""
    base, name, value = call.args
    strong = len(base.things) == 1 and len(f.guards) == f.entered_with
    for thing in base.of(Kind.INSTANCE, Kind.ARGUMENT):
        if isinstance(name.const, str):
            old = None if strong else lookups.otherwise(thing, name.const, call.site)
            thing.attrs[name.const] = join(old, value)
        elif value.things:
            before = thing.detail(AnyAttribute)
            thing.describe(AnyAttribute(join(before.value, value) if before else value))
    return NOTHING


def _getattr(m: Machine, f: Frame, call: Call) -> Value:
    base, name = call.args[0], str(call.args[1].const)
    found = _attribute(m, f, call, base, name)
    if len(call.args) > 2 and not found.things and not found.known:
        return join(found, call.args[2])
    return found


def _attribute(m: Machine, f: Frame, call: Call, base: Value, name: str) -> Value:
    node = m.tree(call.site.path).expression(call.site) or ast.Pass()
    return m.attribute(f, base, name, node)


def _length(m: Machine, f: Frame, value: Value, call: Call) -> Value:
    if m.target.shards and value.dep(Kind.PARAMETERS) and not value.dep(Kind.BATCH, Kind.FORWARD):
        return NOTHING  # how many weights
    if value.measure in measures.ENTRIES:
        return counts.length(m, f, value, constant(0), call.site)
    lists = [t for t in value.of(Kind.ITERATOR) if t.name == "builtins.list"]
    gone_through = [over for thing in lists for over in thing.over]  # `len(list(loader))`
    for thing in (t for v in (value, *gone_through) for t in v.of(Kind.LOADER, Kind.DATASET)):
        return Value((), frozenset({thing}))
    for thing in value.things:
        if thing.items is not None and thing.inner is None:
            return constant(len(thing.items))
    if listed(value) is not None:  # as many as there were batches, on each rank
        return computed(value, measure=Measure.UNIFORM)
    return computed(value, measure=value.measure if value.measure is Measure.COUNT else None)


def _counter(m: Machine, f: Frame, over: Value, call: Call) -> Value:
    """What ``enumerate`` counts; the number of a sample in its batch is not the same elsewhere."""
    index = m.make(Kind.INDEX, f, call.site, "enumerate")
    if not rows.per_sample(over):
        return one(index)
    index.describe(NumbersRows())
    return one(index, flat_deps(over), Measure.MIXED)


def _range(m: Machine, f: Frame, call: Call) -> Value | None:
    """``range(len(batch))`` counts its samples."""
    if len(call.args) != 1 or not call.args[0].rows:
        return None
    index = m.make(Kind.INDEX, f, call.site, "range")
    index.describe(NumbersRows())
    deps = flat_deps(call.args[0])
    counted = Thing(Kind.ITERATOR, call.site, inner=one(index, deps, Measure.MIXED))
    return Value((counted,), deps, rows=True)


def _next(m: Machine, f: Frame, call: Call) -> Value:
    """An element; of a loader whose batches are dealt rank 0 hands its first one on."""
    if m.target.dealt and dealing.is_first(m, f, call):
        m.firsts.append(call)
        return NOTHING
    return join(m.element_of(f, call.args[0]), *call.args[1:])


def _iteration(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    if not call.args:
        return one(Thing(Kind.TUPLE, call.site, call.name, items=()))
    if tail == "next":
        return _next(m, f, call)
    if tail == "zip":
        parts = tuple(m.element_of(f, a) for a in call.args)
        return iterates(m, f, call, one(Thing(Kind.TUPLE, call.site, items=parts)))
    if tail in ("map", "filter"):
        element = m.element_of(f, call.args[-1])
        if any(t.kind in APPLIED for t in call.args[0].things):
            each = tuple(m.element_of(f, given) for given in call.args[1:])
            made = m.apply(f, call.args[0], each, call.site)
            element = made if tail == "map" else element
        result = iterates(m, f, call, element)
        return result.but(deps=flat_deps(call.args[-1]))
    element = m.element_of(f, call.args[0])
    if tail == "enumerate":
        index = _counter(m, f, call.args[0], call)
        element = one(Thing(Kind.TUPLE, call.site, items=(index, element)))
    return iterates(m, f, call, element).but(deps=flat_deps(call.args[0]))


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
