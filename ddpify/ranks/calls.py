"""Calls: who is called, with what, and what comes back."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddpify.ranks import fields, library
from ddpify.ranks.attributes import attribute_of
from ddpify.ranks.functions import enter
from ddpify.ranks.model import Call, Thing, Value
from ddpify.ranks.modules import ClassInfo, FunctionInfo
from ddpify.ranks.values import key_of, merge, of, symbol

if TYPE_CHECKING:
    from ddpify.ranks.frames import Frame
    from ddpify.ranks.machine import Machine

MAX_CALLEES = 4


def call(m: Machine, f: Frame, node: ast.Call, alone: bool = False) -> Value:
    """The value of a call expression."""
    receiver = None
    if isinstance(node.func, ast.Attribute):
        receiver = m.evaluate(f, node.func.value)
        callee = attribute_of(m, f, receiver, node.func.attr, node.func)
    else:
        callee = m.evaluate(f, node.func)
    args, kwargs, star = arguments(m, f, node)
    return call_value(m, f, node, callee, receiver, args, kwargs, star, alone)


def arguments(
    m: Machine, f: Frame, node: ast.Call
) -> tuple[tuple[Value, ...], dict[str, Value], bool]:
    """The arguments of a call, unpacked as far as they are known."""
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    star = False
    for one in node.args:
        if isinstance(one, ast.Starred):
            value = m.evaluate(f, one.value)
            star = star or value.items is None
            # of how many there are only the first is sure
            args += (
                value.items if value.items is not None else (symbol(f"*{key_of(value)}", value),)
            )
        else:
            args.append(m.evaluate(f, one))
    for keyword in node.keywords:
        value = m.evaluate(f, keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif value.keys is not None:
            kwargs.update(dict(value.keys))
        else:
            star = True
    return tuple(args), kwargs, star


def call_value(
    m: Machine,
    f: Frame,
    node: ast.Call,
    callee: Value,
    receiver: Value | None,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    star: bool = False,
    alone: bool = False,
) -> Value:
    """Call whatever ``callee`` may be."""
    made: list[Value] = []
    live = m.live
    for thing in callee.things[:MAX_CALLEES]:
        m.live = live
        made.append(_call_thing(m, f, node, thing, receiver, args, kwargs, star, alone))
    if not made:
        name = f".{node.func.attr}" if isinstance(node.func, ast.Attribute) else "?"
        one = record(m, f, node, name, receiver, args, kwargs, star, alone)
        return library.called(m, f, one)
    if len(made) == 1:
        return made[0]
    return merge(f"call@{f.module.site(node)}", (made, made), frozenset())


def record(
    m: Machine,
    f: Frame,
    node: ast.Call,
    name: str,
    receiver: Value | None,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    star: bool = False,
    alone: bool = False,
    target: FunctionInfo | None = None,
) -> Call:
    """Keep that a call happens now."""
    made = Call(
        m.tick(),
        name,
        node,
        f.module,
        m.live,
        args,
        kwargs,
        receiver,
        m.guards,
        m.loops,
        m.stack,
        f.function,
        m.contexts,
        m.swallows,
        m.grad,
        target=target,
        alone=alone,
        star=star,
    )
    m.run.calls.append(made)
    return made


def _call_thing(
    m: Machine,
    f: Frame,
    node: ast.Call,
    thing: Thing,
    receiver: Value | None,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    star: bool,
    alone: bool,
) -> Value:
    if thing.kind == "function":
        own = receiver if thing.receiver is not None else None
        one = record(m, f, node, thing.name, own, args, kwargs, star, alone, thing.info)
        value = enter(m, f, thing, args, kwargs, one)
        one.result = value
        return value
    if thing.kind == "class":
        one = record(m, f, node, thing.name, None, args, kwargs, star, alone)
        one.result = instantiate(m, f, thing, args, kwargs, one)
        return one.result
    if thing.kind == "external":
        bare = receiver if receiver is not None and _is_object(receiver) else None
        one = record(m, f, node, thing.name, bare, args, kwargs, star, alone)
        return library.called(m, f, one)
    if thing.name == "functools.partial" and thing.call is not None and thing.call.args:
        inner = thing.call
        return call_value(
            m,
            f,
            node,
            inner.args[0],
            None,
            (*inner.args[1:], *args),
            {**inner.kwargs, **kwargs},
            star,
            alone,
        )
    if thing.kind == "attribute" and thing.receiver is not None:
        receiver = receiver or of(thing.receiver)  # `step = loader.sampler.set_epoch; step(1)`
        return _call_method(m, f, node, thing, receiver, args, kwargs, star, alone)
    return _call_object(m, f, node, thing, args, kwargs, star, alone)


def _is_object(value: Value) -> bool:
    return any(thing.kind not in ("external", "module") for thing in value.things)


def _call_method(
    m: Machine,
    f: Frame,
    node: ast.Call,
    thing: Thing,
    receiver: Value,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    star: bool,
    alone: bool,
) -> Value:
    owner = thing.receiver
    assert owner is not None
    method = thing.name.rpartition(".")[2]
    known = _root(owner).kind == "result" and not owner.name.startswith(".")
    base = next(iter(owner.cls.external_bases()), "") if owner.cls is not None else ""
    if known:
        name = f"{owner.name}.{method}"
    elif owner.cls is not None:
        name = f"{owner.name}.{method}" if not base else f"{base}.{method}"
    else:
        name = f".{method}"
    one = record(m, f, node, name, receiver, args, kwargs, star, alone)
    return library.called(m, f, one)


def _root(thing: Thing) -> Thing:
    """What an attribute of an attribute is of, at the end."""
    while thing.kind == "attribute" and thing.receiver is not None:
        thing = thing.receiver
    return thing


def _call_object(
    m: Machine,
    f: Frame,
    node: ast.Call,
    thing: Thing,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    star: bool,
    alone: bool,
) -> Value:
    """``thing(…)``: a model's forward, an object with ``__call__``, something unknown."""
    name = f"{thing.name}.__call__" if thing.kind != "parameter" else ".__call__"
    one = record(m, f, node, name, of(thing), args, kwargs, star, alone)
    if thing.cls is not None:
        method = thing.cls.method("__call__")
        forward = thing.cls.method("forward")
        info = method or (forward if forward and m.interest.narrow(forward) else None)
        if info is not None:
            bound = Thing("function", info.qualname, info=info, receiver=thing)
            one.target = info
            entered = enter(m, f, bound, args, kwargs, one)
            if method is not None:
                one.result = entered
                return entered
            given = library.called(m, f, one)
            made = frozenset(thing for value in (given, entered) for thing in value.sources())
            one.result = replace(given, deps=made - frozenset(given.things))
            return one.result
    return library.called(m, f, one)


def call_method(m: Machine, f: Frame, base: Value, name: str, node: Any) -> Value | None:
    """``base.name()`` that Python calls itself; None if it is not of the project."""
    for thing in base.things:
        info = thing.cls.method(name) if thing.cls is not None else None
        if info is not None:
            bound = Thing("function", info.qualname, info=info, receiver=thing)
            return enter(m, f, bound, (), {}, None)
    return None


def instantiate(
    m: Machine,
    f: Frame,
    thing: Thing,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    one: Call | None,
) -> Value:
    """An instance of a project class, its ``__init__`` run."""
    info: ClassInfo = thing.info
    made = Thing("instance", thing.name, one.site if one else thing.site, call=one, cls=info)
    method = info.method("__init__")
    if method is not None and _initialises(m, info, method):
        bound = Thing("function", method.qualname, info=method, receiver=made)
        enter(m, f, bound, args, kwargs, one)
    elif method is None:
        fields.fill(m, info, made, args, kwargs)
        call_method(m, f, of(made), "__post_init__", one.node if one else None)
    return of(made, *args, *kwargs.values())


def _initialises(m: Machine, info: ClassInfo, method: FunctionInfo) -> bool:
    """Models are made of layers that say nothing about ranks; others are read."""
    if any(base.startswith("torch.nn.") for base in info.external_bases()):
        return m.interest.narrow(method)
    return True
