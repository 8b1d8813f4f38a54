"""Functions of the project that are entered: their frame, their parameters, their body."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import zip_longest

from ddpify.facts import commands
from ddpify.facts.joining import computed, flat_deps, flat_measure, join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.summaries import GivenKinds
from ddpify.facts.values import MORE, NOTHING, REST, Kind, Measure, Thing, Value, constant, one
from ddpify.python.arguments import bind, defaults
from ddpify.source import Site


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
        frame = frame_of(f, info, site)
        bind_parameters(m, frame, info, args, kwargs, arg_sites, kwarg_sites)
        for decorator in reversed(info.decorators):
            frame.no_grad = m.without_grad(decorator, frame.no_grad)
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


def frame_of(f: Frame | None, info: FunctionInfo, site: Site) -> Frame:
    """An activation of a function that is called at a site."""
    stack = (*(f.stack if f is not None else ()), site)
    frame = Frame(info.module, info, {}, info.closure, stack, f, statement=site)
    if f is not None:
        frame.loop, frame.guards, frame.no_grad = f.loop, f.guards, f.no_grad
        frame.contexts = f.contexts
    frame.entered_with = len(frame.guards)
    return frame


def bind_parameters(
    m: Machine,
    frame: Frame,
    info: FunctionInfo,
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
    arg_sites: tuple[Site, ...],
    kwarg_sites: Mapping[str, Site],
) -> None:
    """Give a function's frame what it is called with, or its defaults."""
    spec = info.node.args
    placed: list[tuple[Value, Site | None]] = list(zip_longest(args, arg_sites[: len(args)]))
    named = {name: (value, kwarg_sites.get(name)) for name, value in kwargs.items()}
    bound = bind(spec, placed, named)
    known = defaults(spec, info.defaults, info.kw_defaults)
    for name, (value, site) in bound.given.items():
        frame.env[name], frame.parameters[name] = value, site
    for name in bound.missing:
        value = known.get(name) or commands.option(info, name) or kwargs.get(MORE, NOTHING)
        if MORE in kwargs and value.known:  # or what those words say
            of_batch = value.const is None and flat_measure(kwargs[MORE]) is not Measure.UNIFORM
            value = join(value, kwargs[MORE]) if of_batch else value.but(setting=True)
        frame.env[name], frame.parameters[name] = value, None
    if spec.vararg is not None:
        rest = tuple(value for value, _ in bound.rest)
        made = Thing(Kind.TUPLE, info.site, items=rest, inner=kwargs.get(REST))
        frame.env[spec.vararg.arg] = one(made)
    if spec.kwarg is not None:
        words = {name: value for name, (value, _) in bound.keywords.items() if name != REST}
        keys: dict[object, Value] = {0 if n == MORE else n: value for n, value in words.items()}
        frame.env[spec.kwarg.arg] = one(Thing(Kind.DICT, info.site, keys=keys))
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    first = frame.env.get(names[0]) if names else None
    if info.owner is not None and first is not None and first.things:
        frame.self_thing = first.things[0]
