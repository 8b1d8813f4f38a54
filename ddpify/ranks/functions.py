"""Functions of the project: entered with the values they are given."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpify.names import COLLECTIVES, HEADER_PREFIX
from ddpify.ranks import library, naming, words
from ddpify.ranks.frames import Frame, node_of_function
from ddpify.ranks.model import ALL, RANK, RANK0, Call, Guard, Origin, Thing, Value
from ddpify.ranks.modules import FunctionInfo
from ddpify.ranks.trace import Inline, Item
from ddpify.ranks.values import NONE, TRUE, agreed, merge, of, symbol

if TYPE_CHECKING:
    from ddpify.ranks.machine import Machine

MAX_DEPTH = 22


def enter(
    m: Machine,
    f: Frame | None,
    thing: Thing,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    one: Call | None,
    on_yield: Callable[[Value], None] | None = None,
) -> Value:
    """Run a function of the project and give what it returns."""
    info: FunctionInfo = thing.info
    own = thing.receiver
    if own is not None and "$static" not in thing.attrs:
        args = (own.held or of(own), *args)
    forced = "$context" in thing.attrs
    wanted = forced or m.interest.enters(info) or _handles(m, args, kwargs, own)
    wanted = wanted and info not in m.entering and len(m.entering) <= MAX_DEPTH
    known = m.read_enough(info) if wanted and on_yield is None else None
    if not wanted or known is not None:
        m.inline(known or [])
        return symbol(f"{info.qualname}()@{m.tick()}", *args, *kwargs.values())

    frame = _frame(m, thing, args, kwargs, on_yield)
    kept = (m.items, m.live, m.stack, m.grad, m.guards, m.contexts)
    m.items = []
    before = m.spent
    m.entering.append(info)
    m.entered.add(info)
    if one is not None:
        m.stack = (*m.stack, one)
    _as_decorated(m, thing, info)
    try:
        m.execute(frame, node_of_function(info.node))
        rest = m.live
    finally:
        m.entering.pop()
        items = m.items
        m.items, m.live, m.stack, m.grad, m.guards, m.contexts = kept
    if m.live == ALL:
        m.note_reading(info, m.spent - before, items)
    if "$cached" in thing.attrs:
        _once(m, thing, items, len(args) > (own is not None) or bool(kwargs))
    else:
        m.inline(items)
    value = _returned(m, frame, info, rest)
    ours = info.name in COLLECTIVES and info.module.source.text.startswith(HEADER_PREFIX)
    return agreed(value) if ours else value


def _frame(
    m: Machine,
    thing: Thing,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    on_yield: Callable[[Value], None] | None,
) -> Frame:
    info: FunctionInfo = thing.info
    frame = Frame(info.module, info, {}, m.closures.get(thing))
    frame.on_yield = on_yield
    frame.cls = info.owner
    bind_parameters(m, frame, info, args, kwargs, thing.defaults)
    return frame


def _once(m: Machine, thing: Thing, items: list[Item], asked: bool) -> None:
    """A function under ``functools.cache``: a rank that has called it before gets what it gave.

    With arguments it is not known what was ``asked`` before, so nothing is said of it.
    """
    key = (thing.info, thing.receiver)
    known = ALL if asked else m.remembered.get(key, 0)
    m.remembered[key] = known | m.live
    if items and m.live & ~known:
        m.items.append(Inline(items, m.live & ~known))


def _as_decorated(m: Machine, thing: Thing, info: FunctionInfo) -> None:
    """What decorators of libraries do to the call: no gradients, rank 0 alone."""
    if "$nograd" in thing.attrs:
        m.grad = False
    if "$rank0" in thing.attrs:
        test = Value((True, False), (), frozenset(), thing.attrs["$rank0"].origins)
        node = getattr(info.node, "decorator_list", [ast.Constant(value=True)])[0]
        m.guards = (*m.guards, Guard(test, node, info.module, True, RANK0))
        m.live &= RANK0


_HANDLED = words.WRAPPERS | {words.LOADER, words.SAMPLER}


def _handles(
    m: Machine, args: tuple[Value, ...], kwargs: dict[str, Value], own: Thing | None
) -> bool:
    """Whether a function is given a wrapped model, a loader, what each rank has for itself, or
    functions that are worth entering."""
    held = [*args, *kwargs.values()]
    if own is not None:
        held += own.attrs.values()
    return any(
        value.origins
        or any(thing.name in _HANDLED or thing.sharded is not None for thing in value.things)
        or any(_is_worth(m, thing) for thing in _in(value))
        for value in held
    )


def _is_worth(m: Machine, thing: Thing) -> bool:
    """Whether it is a function, or a class with one, that is worth entering."""
    if thing.kind == "function":
        return m.interest.enters(thing.info)
    if thing.kind != "class":
        return False
    return any(m.interest.enters(info) for info in thing.info.methods.values())


def _in(value: Value) -> tuple[Thing, ...]:
    """What a value may be, or what a list or a dict of lists holds."""
    held = [*(value.items or ()), *(one for _, one in value.keys or ())]
    return value.things + tuple(thing for one in held for thing in _in(one))


def _returned(m: Machine, frame: Frame, info: FunctionInfo, rest: int) -> Value:
    if frame.delegated is not None and len(frame.yielded) == 1:
        return frame.delegated
    if frame.yielded:
        return Value(symbol(f"{info.qualname}()").atoms, items=tuple(frame.yielded[:6]))
    sources: tuple[list[Value], list[Value]] = ([], [])
    why: set[Origin] = set()
    always = False
    for live, value, guards in frame.return_ranks:
        for rank in (0, 1):
            if live & (1 << rank):
                sources[rank].append(value)
        for guard in guards[len(m.guards) :]:
            why |= guard.test.origins
            always = always or any(o.kind not in ("rank", "local-rank") for o in guard.test.origins)
    for rank in (0, 1):
        if rest & (1 << rank) or not sources[rank]:
            sources[rank].append(NONE)
    return merge(f"{info.qualname}()@{m.order}", sources, frozenset(why), always)


def bind_parameters(
    m: Machine,
    frame: Frame,
    info: FunctionInfo,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    defaults_: dict[str, Value],
) -> None:
    """Give a function its arguments; what was not given has its default or is unknown."""
    spec = info.node.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults))
    defaults += spec.defaults
    kwargs = dict(kwargs)
    for number, (parameter, default) in enumerate(zip(positional, defaults, strict=True)):
        if number < len(args):
            value = args[number]
        elif parameter.arg in kwargs:
            value = kwargs.pop(parameter.arg)
        else:
            value = _default(m, frame, info, parameter.arg, default, defaults_)
        m.hold(frame.names, parameter.arg, value)
    for parameter, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        given = kwargs.pop(parameter.arg, None)
        value = given or _default(m, frame, info, parameter.arg, default, defaults_)
        m.hold(frame.names, parameter.arg, value)
    if spec.vararg is not None:
        rest = args[len(positional) :]
        frame.names[spec.vararg.arg] = Value(symbol("*args").atoms, items=tuple(rest))
    if spec.kwarg is not None:
        frame.names[spec.kwarg.arg] = Value(symbol("**kwargs").atoms, keys=tuple(kwargs.items()))


def _default(
    m: Machine,
    frame: Frame,
    info: FunctionInfo,
    name: str,
    default: ast.expr | None,
    known: dict[str, Value],
) -> Value:
    if name in known:
        return known[name]
    if default is None:
        return parameter_value(m, info, name)
    return m.evaluate(Frame(info.module, None, naming.namespace(m, info.module).attrs), default)


def parameter_value(m: Machine, info: FunctionInfo, name: str) -> Value:
    """A parameter that nobody gives."""
    site = info.module.site(info.node)
    named = m.by_name(name, site)
    if named is not None:
        return named
    thing = Thing("parameter", name, site)
    one = symbol(f"{info.qualname}({name})")
    return Value(one.atoms, (thing,))


def _takes_its_place(found: Value, value: Value) -> bool:
    """Whether a decorator gives another function, or something that does not hide this one."""
    if any(thing.kind in ("function", "class", "instance") for thing in found.things):
        return True
    return bool(found.things) and found.made_from.isdisjoint(value.things)


def decorated(m: Machine, f: Frame, decorator: ast.expr, value: Value) -> Value:
    """A function with a decorator."""
    kept = (m.live, m.items)
    m.live, m.items = ALL, []
    made = m.evaluate(f, decorator)
    m.live, m.items = kept
    for thing in made.things:
        if thing.kind == "function":
            found = enter(m, f, thing, (value,), {}, None)
            return found if _takes_its_place(found, value) else value
        if thing.kind == "class" and any(t.kind == "function" for t in value.things):
            return m.apply(f, made, decorator, (value,))
        mark = library.DECORATORS.get(thing.name)
        if mark is None and thing.name.endswith((".rank_zero_only", ".on_main_process")):
            mark = "$rank0"
        if mark is not None:
            site = f.module.site(decorator)
            why = Value((True, True), origins=frozenset({Origin(RANK, thing.name, site)}))
            for one in value.things:
                one.attrs[mark] = why if mark == "$rank0" else TRUE
    return value
