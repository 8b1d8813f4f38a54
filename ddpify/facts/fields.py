"""Objects that Python fills by itself: data classes, named tuples, subclasses of dict and list."""

from __future__ import annotations

import ast

from ddpify.facts import containers
from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.values import NOTHING, Definition, Kind, Thing, Value, one
from ddpify.python import fields as python
from ddpify.source import Site

DICTS = frozenset({"builtins.dict", "collections.OrderedDict", "collections.UserDict"})
TUPLES = frozenset({"typing.NamedTuple"})


def fill(
    m: Machine,
    f: Frame,
    thing: Thing,
    info: ClassInfo,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
) -> None:
    """The fields of a new object, by place and name, then by default; then ``__post_init__``."""
    found = _fields(info)
    names = python.parameters(found)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    extra = []
    for field in found:
        value = given.get(field.name)
        if value is None:
            value = _default(m, f, info, field, thing.born)
        if not field.kept:
            extra.append(value if value is not None else NOTHING)
        elif value is not None:
            thing.attrs[field.name] = value
    if TUPLES & set(info.external_bases()):
        thing.items = tuple(thing.attrs.get(name, NOTHING) for name in names)
    after = info.lookup("__post_init__")
    if after is not None:
        m.apply(f, m.bind_method(thing, after, thing.born), tuple(extra), thing.born)


def is_record(ref: Definition | None) -> bool:
    """Whether a class is made to hold its fields: a data class, a named tuple."""
    if not isinstance(ref, ClassInfo):
        return False
    said = [one.func if isinstance(one, ast.Call) else one for one in ref.node.decorator_list]
    named = any(ast.unparse(one).rpartition(".")[2] == "dataclass" for one in said)
    return named or bool(TUPLES & set(ref.external_bases()))


def names_of(info: ClassInfo) -> list[str]:
    """The fields of a record that are given by place, in order."""
    return python.parameters(_fields(info))


def _fields(info: ClassInfo) -> tuple[python.Field, ...]:
    return python.fields((base.node for base in reversed(info.mro())), _is_field)


def _is_field(owner: ast.ClassDef, func: ast.expr) -> bool:
    return ast.unparse(func).rpartition(".")[2] == "field"


def _default(
    m: Machine, f: Frame, info: ClassInfo, field: python.Field, site: Site
) -> Value | None:
    owner = next((base for base in info.mro() if base.node is field.owner), info)
    frame = Frame(owner.module, None, {}, stack=f.stack, caller=f, statement=site)
    frame.loop, frame.guards, frame.no_grad = f.loop, f.guards, f.no_grad
    if field.factory is not None:
        return m.apply(frame, m.evaluate(frame, field.factory), (), site)
    return owner.env.get(field.name) if field.default is not None else None


def named_tuple(
    m: Machine, f: Frame, args: tuple[Value, ...], kwargs: dict[str, Value], site: Site
) -> Value | None:
    """The class that ``namedtuple("Feeds", "train val")`` makes."""
    node = m.tree(site.path).expression(site)
    names = _names(args[1]) if len(args) > 1 else []
    if not names or node is None or not isinstance(args[0].const, str):
        return None
    made = python.named_tuple_class(args[0].const, names, node)
    info = ClassInfo(made.name, made, f.module, site, (one(m.external("typing.NamedTuple", site)),))
    defaults = kwargs.get("defaults")
    items = [t.items for t in defaults.things if t.items] if defaults is not None else []
    for name, value in zip(reversed(names), reversed(items[0] if items else ()), strict=False):
        info.env[name] = value
    for statement in made.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            known = statement.target.id in info.env
            statement.value = ast.copy_location(ast.Constant(None), node) if known else None
    info.thing = Thing(Kind.CLASS, site, info.name, ref=info)
    return one(info.thing)


def _names(value: Value) -> list[str]:
    if isinstance(value.const, str):
        return python.field_names(value.const)
    items = [t.items for t in value.things if t.items]
    return [str(item.const) for item in items[0]] if items else []


def contain(
    thing: Thing, info: ClassInfo, args: tuple[Value, ...], kwargs: dict[str, Value]
) -> bool:
    """Fill an object whose class is a dict or a list; False when it is neither."""
    bases = set(info.external_bases())
    if DICTS & bases:
        made = containers.dict_of(args[0] if args else None, kwargs, thing.born).things[0]
        keys = thing.keys if thing.keys is not None else {}
        keys.update(made.keys or {})
        thing.keys = keys
    elif "builtins.list" in bases:
        given = join(*(containers.everything(t) for value in args for t in value.things))
        items = [t.items for value in args for t in value.things if t.inner is None]
        whole = len(items) == 1 and items[0] is not None
        thing.items = items[0] if whole else ()
        thing.inner = None if whole or not args else given
    return bool(DICTS & bases) or "builtins.list" in bases


def changed(thing: Thing, kwargs: dict[str, Value], site: Site) -> Value:
    """``dataclasses.replace(x, a=1)`` and ``x._replace(a=1)``."""
    made = Thing(thing.kind, site, thing.name, {**thing.attrs, **kwargs}, ref=thing.ref)
    if thing.items is not None:
        made.items = tuple(made.attrs.values())
    return one(made)
