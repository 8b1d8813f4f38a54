"""Calls: who is called, with what, and what comes back."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from ddpify.facts import containers, fields, functional, library, methods, sums
from ddpify.facts.details import OpenForward, Partial, made_by
from ddpify.facts.events import Access, Call, Forward
from ddpify.facts.expressions import attribute
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import per_sample
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.summaries import GivenKinds
from ddpify.facts.values import (
    NOTHING,
    Kind,
    Measure,
    Thing,
    Value,
    computed,
    constant,
    flat_deps,
    flat_measure,
    join,
    one,
)
from ddpify.python.arguments import bind, defaults
from ddpify.source import Site

CALLABLE_MODELS = (Kind.MODEL, Kind.WRAPPED)


@dataclass(frozen=True)
class Arguments:
    """The evaluated arguments of a call, and where each stands."""

    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    arg_sites: tuple[Site, ...]
    kwarg_sites: dict[str, Site]
    star: bool

    def all(self) -> tuple[Value, ...]:
        """Positional, then keyword."""
        return (*self.args, *self.kwargs.values())


def call(m: Machine, f: Frame, node: ast.Call, alone: bool) -> Value:
    """Evaluate a call and record it."""
    m.spend()
    if _is_super(node.func):
        return _super_call(m, f, node)
    receiver = None
    if isinstance(node.func, ast.Attribute):
        receiver = m.evaluate(f, node.func.value)
        site = m.site(f, node.func.value)
        m.record(Access(m.tick(), receiver, site, node.func.attr, m.where(f)))
        callee = attribute(m, f, receiver, node.func.attr, node.func)
        m.remember(f, node.func, callee)
    else:
        callee = m.evaluate(f, node.func)
    arguments = _arguments(m, f, node)
    event = _event(m, f, node, callee, receiver, arguments, alone)
    for thing in (t for v in arguments.all() for t in v.things):
        thing.hop(event.site, "passed")
    event.result = _dispatch(m, f, node, callee, receiver, arguments, event)
    m.record(event)
    sums.in_place(m, f, node, event)
    return event.result


def _event(
    m: Machine,
    f: Frame,
    node: ast.Call,
    callee: Value,
    receiver: Value | None,
    arguments: Arguments,
    alone: bool,
) -> Call:
    targets = [t.ref for t in callee.things if isinstance(t.ref, FunctionInfo)]
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return Call(
        m.tick(),
        _call_name(node, callee, receiver),
        m.site(f, node),
        m.site(f, node.func),
        m.where(f),
        arguments.args,
        arguments.kwargs,
        arguments.arg_sites,
        arguments.kwarg_sites,
        receiver,
        m.site(f, inner) if inner is not None else None,
        targets[0] if targets else None,
        alone=alone,
        star=arguments.star,
    )


def _call_name(node: ast.Call, callee: Value, receiver: Value | None) -> str:
    for thing in callee.things:
        if thing.kind is Kind.EXTERNAL:
            return thing.name
        if thing.ref is not None:
            return thing.name
    if isinstance(node.func, ast.Attribute):
        return f".{node.func.attr}"
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _arguments(m: Machine, f: Frame, node: ast.Call) -> Arguments:
    args: list[Value] = []
    sites: list[Site] = []
    star = False
    for arg in node.args:
        value = m.evaluate(f, arg)
        if isinstance(arg, ast.Starred):
            star = True
            items = [t.items for t in value.things if t.items is not None]
            args.extend(items[0] if items else ())
            sites.extend([m.site(f, arg)] * (len(items[0]) if items else 0))
            continue
        args.append(value)
        sites.append(m.site(f, arg))
    kwargs, kwarg_sites, spread = _keywords(m, f, node)
    return Arguments(tuple(args), kwargs, tuple(sites), kwarg_sites, star or spread)


def _keywords(
    m: Machine, f: Frame, node: ast.Call
) -> tuple[dict[str, Value], dict[str, Site], bool]:
    kwargs: dict[str, Value] = {}
    sites: dict[str, Site] = {}
    spread = False
    for keyword in node.keywords:
        value = m.evaluate(f, keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
            sites[keyword.arg] = m.site(f, keyword.value)
            continue
        spread = True
        for thing in value.things:
            for key, item in (thing.keys or {}).items():
                kwargs[str(key)] = join(kwargs.get(str(key)), item)
    return kwargs, sites, spread


def _dispatch(
    m: Machine,
    f: Frame,
    node: ast.Call,
    callee: Value,
    receiver: Value | None,
    arguments: Arguments,
    event: Call,
) -> Value:
    results = []
    for thing in callee.things:
        result = _call_thing(m, f, thing, arguments, event)
        if result is not None:
            results.append(result)
    if results:
        return join(*results)
    if isinstance(node.func, ast.Attribute) and receiver is not None:
        return methods.call_method(m, f, receiver, node.func.attr, event)
    return library.call_unknown(m, f, None, event)


def _call_thing(
    m: Machine, f: Frame, thing: Thing, arguments: Arguments, event: Call
) -> Value | None:
    arguments = _with_bound(thing, arguments, event)
    if thing.part_of is not None and event.name.startswith("."):
        return None
    if isinstance(thing.ref, FunctionInfo):
        return _call_function(m, f, thing, thing.ref, arguments, event)
    if thing.kind is Kind.CLASS and isinstance(thing.ref, ClassInfo):
        return instantiate(m, f, thing.ref, arguments, event)
    if thing.kind is Kind.EXTERNAL:
        return library.call_external(m, f, thing.name, event)
    if thing.kind in CALLABLE_MODELS:
        return forward(m, thing, event)
    if thing.detail(OpenForward) and isinstance(thing.ref, ClassInfo):
        return _call_method(m, f, thing, thing.ref, "forward", arguments, event)
    if thing.kind is Kind.CRITERION:
        return library.criterion_result(m, f, thing, event)
    if isinstance(thing.ref, ClassInfo) and thing.ref.lookup("__call__") is not None:
        return _call_method(m, f, thing, thing.ref, "__call__", arguments, event)
    if thing.kind is Kind.UNKNOWN:
        return library.call_unknown(m, f, thing, event)
    return None


def _call_method(
    m: Machine,
    f: Frame,
    thing: Thing,
    info: ClassInfo,
    name: str,
    arguments: Arguments,
    event: Call,
) -> Value:
    """An object is called: its class says what that runs."""
    found = info.lookup(name)
    bound = m.bind_method(thing, found, event.site) if found is not None else NOTHING
    return join(*[_call_thing(m, f, t, arguments, event) for t in bound.things])


def _with_bound(thing: Thing, arguments: Arguments, event: Call) -> Arguments:
    """A call of a ``functools.partial``: what was given before stands elsewhere."""
    given = thing.detail(Partial)
    if given is None:
        return arguments
    event.bound = True
    event.args = (*given.args, *event.args)
    event.kwargs = {**given.kwargs, **event.kwargs}
    event.arg_sites = (*[event.callee for _ in given.args], *event.arg_sites)
    return replace(arguments, args=event.args, kwargs=event.kwargs, arg_sites=event.arg_sites)


def _call_function(
    m: Machine, f: Frame, thing: Thing, info: FunctionInfo, arguments: Arguments, event: Call
) -> Value:
    args, sites = arguments.args, arguments.arg_sites
    if thing.receiver is not None:
        if thing.receiver.kind is Kind.WRAPPED:
            return computed(*arguments.all())
        args = (one(thing.receiver), *args)
        sites = (event.receiver_site or event.callee, *sites)
    if info.name == "forward" and thing.receiver is not None and thing.receiver.kind is Kind.MODEL:
        return forward(m, thing.receiver, event)
    return m.enter(f, info, args, arguments.kwargs, event.site, sites, arguments.kwarg_sites)


def forward(m: Machine, model: Thing, event: Call) -> Value:
    """A model is called: its output has the batch axis of its input.

    What it makes of a list or dict of inputs, targets among them perhaps, is not known.
    """
    output = m.make(Kind.FORWARD, event.where.frame, event.site, f"{model.serial}")
    m.record(Forward(m.tick(), model, event, output))
    values = (*event.args, *event.kwargs.values())
    deps = frozenset().union(*[flat_deps(v) for v in values]) if values else frozenset()
    batched = any(v.measure is Measure.SAMPLES or per_sample(v) for v in values)
    # Of inputs alone: what is made of inputs and targets may be a loss, which has no rows.
    local = [v for v in values if flat_measure(v) is not Measure.UNIFORM]
    measure = Measure.SAMPLES if batched else (Measure.MIXED if local else Measure.UNIFORM)
    return Value((), deps | {output}, measure, rows=len(local) == 1 and per_sample(local[0]))


def instantiate(m: Machine, f: Frame, info: ClassInfo, arguments: Arguments, event: Call) -> Value:
    """A class of the project is called."""
    kind = library.instance_kind(info)
    thing = m.make(kind, f, event.site, info.name)
    thing.ref = info
    thing.attrs.clear()
    library.describe(m, thing, event)
    deps = frozenset[Thing]().union(*[flat_deps(v) for v in arguments.all()])
    made_by(thing, event, deps)
    init = info.lookup("__init__") if kind is not Kind.MODEL or m.builds(info) else None
    for target in init.things if init is not None else ():
        if isinstance(target.ref, FunctionInfo):
            args = (one(thing), *arguments.args)
            sites = (event.callee, *arguments.arg_sites)
            m.enter(f, target.ref, args, arguments.kwargs, event.site, sites, arguments.kwarg_sites)
    if init is None and kind is Kind.INSTANCE:
        if "typing.TypedDict" in info.external_bases():
            return containers.dict_of(None, arguments.kwargs, event.site)
        given = (arguments.args, arguments.kwargs)
        if not fields.contain(thing, info, *given):
            fields.fill(m, f, thing, info, *given)
    if kind is Kind.MODEL and m.follows(info, thing):
        functional.open_up(thing)
    if kind is Kind.INSTANCE:
        return one(thing, deps)
    return one(thing)


def _is_super(func: ast.expr) -> bool:
    return (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Call)
        and isinstance(func.value.func, ast.Name)
        and func.value.func.id == "super"
    )


def _super_call(m: Machine, f: Frame, node: ast.Call) -> Value:
    assert isinstance(node.func, ast.Attribute)
    arguments = _arguments(m, f, node)
    owner = f.function.owner if f.function is not None else None
    if owner is None or f.self_thing is None:
        return computed(*arguments.all())
    whole = f.self_thing.ref.mro() if isinstance(f.self_thing.ref, ClassInfo) else owner.mro()
    line = whole if owner in whole else owner.mro()  # that of the object: bases in a diamond
    for info in line[line.index(owner) + 1 :]:
        found = info.env.get(node.func.attr)
        for thing in found.things if found is not None else ():
            if isinstance(thing.ref, FunctionInfo):
                args = (one(f.self_thing), *arguments.args)
                return m.enter(f, thing.ref, args, arguments.kwargs, m.site(f, node))
    if node.func.attr == "__init__" and f.self_thing.kind is Kind.INSTANCE:
        fields.contain(f.self_thing, owner, arguments.args, arguments.kwargs)
    return NOTHING


def apply(m: Machine, f: Frame, function: Value, args: tuple[Value, ...], site: Site) -> Value:
    """Call something as Python does by itself; what it makes cannot be changed at ``site``."""
    sites = (site,) * len(args)
    given = Arguments(args, {}, sites, {}, True)
    results = []
    for thing in function.things:
        event = Call(
            m.tick(), thing.name, site, site, m.where(f), args, {}, sites, {}, star=True, bound=True
        )
        result = _call_thing(m, f, thing, given, event)
        results.extend([result] if result is not None else [])
    return join(*results) if results else computed(*args)


def enter(
    m: Machine,
    f: Frame | None,
    info: FunctionInfo,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    site: Site,
    arg_sites: tuple[Site, ...],
    kwarg_sites: Mapping[str, Site],
) -> Value:
    """Run a project function; one that only computes is read once for this kind of arguments."""
    m.entered_at.add(site)
    given = GivenKinds.to(info, args, kwargs)
    key = m.summaries.key(f, info, given)
    if f is None or key is None:
        return _read(m, f, info, args, kwargs, site, arg_sites, kwarg_sites)
    known = m.summaries.replayed(key, given)
    if known is not None:
        return known
    recording = m.summaries.begin((*f.stack, site), given)
    try:
        result = _read(m, f, info, args, kwargs, site, arg_sites, kwarg_sites)
    finally:
        m.summaries.end(recording)
    m.summaries.keep(key, recording, info, given, result)
    return result


def _read(
    m: Machine,
    f: Frame | None,
    info: FunctionInfo,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    site: Site,
    arg_sites: tuple[Site, ...],
    kwarg_sites: Mapping[str, Site],
) -> Value:
    """Read a body; recursion and endless depth give what is known of the arguments."""
    m.summaries.entered(info)
    with m.inside(info) as allowed:
        if not allowed:
            m.summaries.cut_short()
            return computed(*args, *kwargs.values())
        frame = _frame(f, info, site)
        _bind_parameters(m, frame, info, args, kwargs, arg_sites, kwarg_sites)
        frame.no_grad = frame.no_grad or any(m.turns_off_grad(d) for d in info.decorators)
        if isinstance(info.node, ast.Lambda):
            frame.statement = f.statement if f is not None else site
            return m.evaluate(frame, info.node.body)
        ended = m.execute(frame, info.node.body)
    if frame.yields:
        inner = join(*frame.yields)
        return one(Thing(Kind.ITERATOR, site, inner=inner), flat_deps(inner))
    if not ended:
        frame.returns.append(constant(None))
    return join(*frame.returns)


def _frame(f: Frame | None, info: FunctionInfo, site: Site) -> Frame:
    stack = (*(f.stack if f is not None else ()), site)
    frame = Frame(info.module, info, {}, info.closure, stack, f, statement=site)
    if f is not None:
        frame.loop, frame.guards, frame.no_grad = f.loop, f.guards, f.no_grad
        frame.contexts = f.contexts
    frame.entered_with = len(frame.guards)
    return frame


def _bind_parameters(
    m: Machine,
    frame: Frame,
    info: FunctionInfo,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    arg_sites: tuple[Site, ...],
    kwarg_sites: Mapping[str, Site],
) -> None:
    spec = info.node.args
    placed: list[tuple[Value, Site | None]] = list(zip_longest(args, arg_sites[: len(args)]))
    named = {name: (value, kwarg_sites.get(name)) for name, value in kwargs.items()}
    bound = bind(spec, placed, named)
    known = defaults(spec, info.defaults, info.kw_defaults)
    for name, (value, site) in bound.given.items():
        frame.env[name], frame.parameters[name] = value, site
    for name in bound.missing:
        frame.env[name], frame.parameters[name] = known.get(name, NOTHING), None
    if spec.vararg is not None:
        rest = tuple(value for value, _ in bound.rest)
        frame.env[spec.vararg.arg] = one(Thing(Kind.TUPLE, info.site, items=rest))
    if spec.kwarg is not None:
        keys: dict[object, Value] = {name: value for name, (value, _) in bound.keywords.items()}
        frame.env[spec.kwarg.arg] = one(Thing(Kind.DICT, info.site, keys=keys))
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    first = frame.env.get(names[0]) if names else None
    if info.owner is not None and first is not None and first.things:
        frame.self_thing = first.things[0]
