"""The fields of data classes, named tuples and namespaces, the entries of dicts: what an object is
given and has by itself."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.ranks import naming
from ddpify.ranks.containers import elements
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result
from ddpify.ranks.values import symbol

_DICTS = ("builtins.dict", "collections.OrderedDict", "collections.UserDict", "typing.TypedDict")


def held(
    m: RankMachine,
    info: ClassDefinition,
    value: RankValue,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
) -> RankValue | None:
    """An object of a class that is a dict, a list or a named tuple, if what it holds is known."""
    if info.inherits("typing.NamedTuple"):
        names = [name for one in reversed(info.mro()) for name in _annotated(one)]
        made = value.things[0].attrs
        items = tuple(made[name] for name in names if name in made)
        return replace(value, items=items) if len(items) == len(names) else None
    method = info.method("__init__")
    if "**" in kwargs or len(args) > 1 or (method is not None and not _hands_on(method)):
        return None
    if info.inherits("builtins.list", "collections.UserList"):
        items_ = elements(args[0]) if args else ()
        return None if items_ is None else replace(value, items=items_)
    first = args[0].keys if args else ()
    if first is None or not info.inherits(*_DICTS):
        return None
    return replace(value, origins=frozenset(), keys=tuple({**dict(first), **kwargs}.items()))


def _hands_on(method: FunctionDefinition) -> bool:
    """``__init__(self, *args, **kwargs)``, which says what the base is given."""
    spec = method.node.args
    return spec.vararg is not None and spec.kwarg is not None and len(spec.args) == 1


def fill(
    m: RankMachine,
    info: ClassDefinition,
    made: RankThing,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
) -> None:
    """Fields by position and name, then those with a default of ``field(…)``."""
    names = [name for one in reversed(info.mro()) for name in _annotated(one)]
    made.attrs.update(zip(names, args, strict=False))
    made.attrs.update({name: value for name, value in kwargs.items() if name in names})
    if "**" in kwargs:  # any of the others
        unknown = {name: symbol(f"{name}@{id(made)}", kwargs["**"]) for name in names}
        made.attrs.update({**unknown, **made.attrs})
    for one in info.mro():
        for name in _annotated(one):
            default = None if name in made.attrs else _default(m, one, name)
            if default is not None:
                made.attrs[name] = default


def keep(
    method: FunctionDefinition,
    made: RankThing,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
) -> None:
    """What a constructor that was not read is given and keeps: ``self.group = group``."""
    given = {**dict(zip(method.parameters[1:], args, strict=False)), **kwargs}
    if any(value.things for value in given.values()):
        for attr, parameter in method.stored.items():
            if parameter in given and attr not in made.attrs:
                made.attrs[attr] = given[parameter]


def _default(m: RankMachine, info: ClassDefinition, name: str) -> RankValue | None:
    """``field(default=…)`` and ``field(default_factory=…)``, which is called for each object."""
    node = info.assigns.get(name)
    if not isinstance(node, ast.Call):
        return None
    frame = RankFrame(info.module, None, naming.namespace(m, info.module).attrs)
    if "dataclasses.field" not in m.evaluate(frame, node.func).names():
        return None
    given = {one.arg: m.evaluate(frame, one.value) for one in node.keywords}
    if "default_factory" in given:
        return m.call_value(frame, given["default_factory"], Given(node))
    return given.get("default")


def _annotated(info: ClassDefinition) -> list[str]:
    """The annotated names of a class body, in order."""
    return [
        item.target.id
        for item in info.node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def places(m: RankMachine, thing: RankThing) -> list[str]:
    """What the parts of ``case Point(x, y)`` are: ``__match_args__``, or the fields."""
    if thing.kind == "class":
        written = naming.class_attribute(m, thing.info, "__match_args__")
        if written is not None:
            return [str(item.constant) for item in written.items or ()]
        return [name for one in reversed(thing.info.mro()) for name in _annotated(one)]
    made = thing.call if thing.name == "collections.namedtuple" else None
    return _names_of(made) if made is not None else []


def namespace(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``SimpleNamespace(me=rank)``."""
    made = result(one)
    made.things[0].attrs.update(one.kwargs)
    return made


def named_tuple(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``Info(rank, size)`` of a class that ``namedtuple("Info", "rank size")`` made."""
    kind = one.receiver.things[0].call if one.receiver is not None else None
    names = _names_of(kind) if kind is not None else []
    if kind is None or not names or one.star:
        return None
    defaults = kind.arg(-1, "defaults")
    last = elements(defaults) if defaults is not None else None
    held = dict(zip(names[::-1], (last or ())[::-1], strict=False))
    held |= {**dict(zip(names, one.args, strict=False)), **one.kwargs}
    made = result(one)
    made.things[0].attrs.update(held)
    items = tuple(held[name] for name in names if name in held)
    return replace(made, items=items) if len(items) == len(names) else made


def _names_of(kind: RankCall) -> list[str]:
    listed = kind.arg(1, "field_names")
    names = [item.constant for item in listed.items or (listed,)] if listed is not None else []
    return [name for text in names for name in str(text).replace(",", " ").split()]
