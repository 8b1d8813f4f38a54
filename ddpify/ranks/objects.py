"""Objects of the project: how they are made, what Python itself asks of them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ddpify.python import words as names
from ddpify.ranks import naming
from ddpify.ranks.containers import elements, pair
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import CLOCK, Origin
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result
from ddpify.ranks.values import NONE, constant, of, symbol

Handler = Callable[[RankMachine, RankFrame, RankCall], RankValue | None]

OPERATORS: Final = {
    "Add": "__add__",
    "Sub": "__sub__",
    "Mult": "__mul__",
    "MatMult": "__matmul__",
    "Div": "__truediv__",
    "FloorDiv": "__floordiv__",
    "Mod": "__mod__",
    "Pow": "__pow__",
    "LShift": "__lshift__",
    "RShift": "__rshift__",
    "BitAnd": "__and__",
    "BitOr": "__or__",
    "BitXor": "__xor__",
}


def operated(
    m: RankMachine, f: RankFrame, op: str, a: RankValue, b: RankValue, node: ast.AST
) -> RankValue | None:
    """``a @ b`` of an object that says what that is; None for others."""
    name = OPERATORS.get(op, "")
    held = [value for value in (a, b) if any(t.kind == "instance" for t in value.things)]
    if not name or not held:
        return None
    found = m.call_method(f, a, name, node, (b,))
    return found or m.call_method(f, b, f"__r{name[2:]}", node, (a,))


def shown(m: RankMachine, f: RankFrame, value: RankValue, node: ast.AST) -> None:
    """``f"{logger}"``, ``print(logger)``: what an object of the project says of itself is read."""
    thing = value.things[0] if len(value.things) == 1 else None
    cls = thing.cls if thing is not None and thing.kind == "instance" else None
    said = (name for name in ("__format__", "__str__", "__repr__") if cls and cls.method(name))
    name = next(said, "")
    if name:
        given = (symbol("format"),) if name == "__format__" else ()
        m.call_method(f, value, name, node, given)


def _shown(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    for value in one.args:
        shown(m, f, value, one.node)
    return None


def written(m: RankMachine, thing: RankThing, name: str) -> RankValue | None:
    """``__name__``, ``__class__``, ``__dict__``: what Python writes on its objects."""
    if name in ("__name__", "__qualname__") and thing.kind in ("function", "class"):
        return constant(thing.info.name)
    if name == "__class__" and thing.kind == "instance" and thing.cls is not None:
        cls = m.classes.get(thing.cls)
        return of(cls) if cls is not None else None
    if name == "__dict__" and thing.kind in ("instance", "class", "module"):
        return attributes_of(thing)
    return None


def attributes_of(thing: RankThing) -> RankValue:
    """``vars(object)``: a dict that is its attributes."""
    held = {name: value for name, value in thing.attrs.items() if not name.startswith("$")}
    return replace(
        symbol(f"dict@{thing.name}"), things=(_dict_of(thing),), keys=tuple(held.items())
    )


def _dict_of(thing: RankThing) -> RankThing:
    return RankThing("attribute", f"{thing.name}.__dict__", thing.site, receiver=thing)


def updated(m: RankMachine, one: RankCall, receiver: RankValue) -> RankValue | None:
    """``self.__dict__.update(options)``; None for other receivers."""
    owner = next((t.receiver for t in receiver.things if t.name.endswith(".__dict__")), None)
    if owner is None or one.method != "update" or receiver.keys is None:
        return None
    given = dict(one.kwargs)
    for arg in one.args:
        given.update(dict(arg.keys or ()))
    for name, value in given.items():
        m.write(owner.attrs, name, value)
    return NONE


def _vars(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    things = one.args[0].things if len(one.args) == 1 else ()
    if len(things) != 1 or things[0].kind not in ("instance", "class", "module"):
        return None
    return attributes_of(things[0])


def _names(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``locals()``, ``globals()``."""
    space = f.names if one.name.endswith("locals") else naming.namespace(m, f.module).attrs
    return replace(symbol(f"dict@{one.site}"), keys=tuple(space.items()))


def _new(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``object.__new__(cls)``."""
    cls = one.args[0].things[0] if one.args and one.args[0].things else None
    if cls is None or cls.kind != "class":
        return None
    return of(RankThing("instance", cls.name, one.site, call=one, cls=cls.info))


def _type(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``type(x)``: the class; ``type(name, bases, attributes)`` is not followed."""
    made = [m.classes.get(t.cls) for t in one.args[0].things if t.cls] if one.args else []
    if len(one.args) != 1 or not made or None in made:
        return None
    one_of = symbol(f"type@{one.site}", one.args[0])
    return RankValue(one_of.atoms, tuple(thing for thing in made if thing is not None))


def _copy(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``copy.copy``, ``copy.deepcopy`` of a list, a dict or an object of the project."""
    if not one.args:
        return None
    value = one.args[0]
    own = [t for t in value.things if t.kind == "instance" and t.cls is not None]
    if value.items is None and value.keys is None and not (own and len(own) == len(value.things)):
        return None
    if any(base.startswith("torch.") for t in own if t.cls for base in t.cls.external_bases()):
        return None
    made = []
    for thing in own:
        twin = RankThing("instance", thing.name, one.site, call=one, cls=thing.cls)
        twin.attrs.update(thing.attrs)
        made.append(twin)
    return replace(value, things=tuple(made) or value.things)


def _cast(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``model, optimizer = amp.initialize(model, optimizer)`` of apex: these themselves."""
    given = [one.arg(n, name) for n, name in enumerate(("models", "optimizers"))]
    both = tuple(value for value in given if value is not None)
    return pair(*both) if len(both) == 2 else given[0]


def _replaced(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``dataclasses.replace(value, field=…)``."""
    made = _copy(m, f, one)
    for thing in made.things if made is not None else ():
        for name, value in one.kwargs.items():
            m.hold(thing.attrs, name, value)
    return made


def _as_dict(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    things = one.args[0].things if one.args else ()
    if len(things) != 1 or things[0].kind != "instance":
        return None
    return replace(attributes_of(things[0]), things=())


def _first(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``nullcontext(x)``, ``closing(x)``, ``typing.cast(T, x)``-like: its last argument."""
    return one.args[-1] if one.args else None


def _getter(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``itemgetter(0)(x)``, ``attrgetter("a")(x)``, ``methodcaller("f")(x)``."""
    kind = one.receiver.things[0].call if one.receiver is not None else None
    if kind is None or len(kind.args) < 1 or len(one.args) != 1:
        return None
    base, key = one.args[0], kind.args[0]
    node = ast.copy_location(ast.Attribute(one.node, "", ast.Load()), one.node)
    if kind.method == "itemgetter":
        return m.item(f, base, key, one.node)
    if not isinstance(key.constant, str):
        return None
    for name in key.constant.split("."):
        node.attr = name
        base = m.attribute(f, base, name, node)
    if kind.method == "attrgetter":
        return base
    return m.apply(f, base, one.node, kind.args[1:])


def _called_later(place: int, keyword: str) -> Handler:
    """A function that is given another one calls it: on a thread, at the end."""

    def called(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
        target = one.arg(place, keyword)
        if target is None or not any(t.kind == "function" for t in target.things):
            return None
        given = one.kwargs.get("args")
        held = elements(given) if given is not None else one.args[place + 1 :]
        m.apply(f, target, one.node, tuple(held or ()))
        return result(one)

    return called


def _on_signal(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``signal.signal(SIGUSR1, save)``: it may be called, whatever one rank alone is sent.

    What it sets may be set on some ranks, and on each at another moment.
    """
    may = symbol(f"signal@{f.module.path}:{one.node.lineno}")
    mark, handler = len(m.journal), one.arg(1, "handler")
    if handler is None or not any(thing.kind == "function" for thing in handler.things):
        return result(one)
    apart = frozenset({Origin(CLOCK, "a signal", one.site)})
    given = (replace(symbol("signal number"), origins=apart), symbol("stack frame"))
    m.branch(f, may, one.node, (lambda: m.apply(f, handler, one.node, given), lambda: None))
    for (_, name), (space, _) in m.since(mark, None).items():
        m.write(space, name, replace(symbol(f"{name} by {may.atoms[0]}"), origins=apart))
    return result(one)


def _named_replace(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``point._replace(x=1)``."""
    receiver = one.receiver
    if receiver is None or receiver.items is None or len(receiver.things) != 1:
        return None
    old = receiver.things[0]
    made = replace(old, attrs={**old.attrs, **one.kwargs})
    items = tuple(made.attrs[name] for name in old.attrs)
    return replace(receiver, things=(made,), items=items)


def _entered(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``stack.enter_context(x)``."""
    if not one.args:
        return None
    found = m.call_method(f, one.args[0], "__enter__", one.node)
    if found is None and one.args[0].items and not one.args[0].things:
        return one.args[0].items[0]  # what a generator yields
    return found if found is not None else one.args[0]


def _module(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``importlib.import_module("models.net")``, ``__import__("net")``."""
    name, package = one.arg(0, "name"), one.arg(1, "package")
    dotted = name.constant if name is not None else None
    if not isinstance(dotted, str) or not dotted:
        return None
    if dotted[0] == "." and package is not None and isinstance(package.constant, str):
        dotted = f"{package.constant}.{dotted.lstrip('.')}"
    if one.name == "builtins.__import__":
        dotted = dotted.partition(".")[0]
    found = naming.imported(m, f.module, dotted, "", 0)
    return found if any(t.kind == "module" for t in found.things) else None


HANDLERS: Final[dict[str, Handler]] = {
    "builtins.vars": _vars,
    names.PRINT: _shown,
    "builtins.locals": _names,
    "builtins.globals": _names,
    "builtins.object.__new__": _new,
    **dict.fromkeys(names.COPIES, _copy),
    f"{names.APEX_AMP}initialize": _cast,
    "dataclasses.replace": _replaced,
    "dataclasses.asdict": _as_dict,
    "contextlib.nullcontext": _first,
    "contextlib.ExitStack.enter_context": _entered,
    "contextlib.AsyncExitStack.enter_async_context": _entered,
    "asyncio.run": _first,
    "importlib.import_module": _module,
    "builtins.__import__": _module,
    "contextlib.closing": _first,
    "operator.itemgetter.__call__": _getter,
    "operator.attrgetter.__call__": _getter,
    "operator.methodcaller.__call__": _getter,
    "threading.Thread": _called_later(1, "target"),
    "atexit.register": _called_later(0, "func"),
    "signal.signal": _on_signal,
    "collections.namedtuple.__call__._replace": _named_replace,
}
type_of = _type
