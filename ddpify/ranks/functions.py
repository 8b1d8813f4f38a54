"""Functions of the project: entered with the values they are given."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from ddpify.names import COLLECTIVES, OF_LOADERS, OWN
from ddpify.ranks import configured, inflight, leaving, mixing, naming, narrowing, words
from ddpify.ranks.frames import RankFrame, node_of_function
from ddpify.ranks.given import Given
from ddpify.ranks.model import ALL, RANK0, RankCall, RankGuard, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.namespaces import may_set
from ddpify.ranks.origins import SYNCED, Origin
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import dealt
from ddpify.ranks.trace import Inline, Item
from ddpify.ranks.values import NONE, agreed, merge, of, symbol, text

MAX_DEPTH = 22


def enter(
    m: RankMachine,
    f: RankFrame | None,
    thing: RankThing,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
    one: RankCall | None,
    on_yield: Callable[[RankValue], None] | None = None,
) -> RankValue:
    """Run a function of the project and give what it returns."""
    info: FunctionDefinition = thing.info
    own = thing.receiver
    if own is not None and not thing.traits.static:
        args = (own.held or of(own), *args)
    forced = thing.traits.context or thing.traits.rank0 is not None
    apart = m.live not in (0, ALL)  # what one rank alone makes, the others have in another form
    wanted = forced or apart or m.interest.enters(info) or _handles(m, args, kwargs, own)
    wanted = wanted or inflight.handles(m, (*args, *kwargs.values()), own)
    wanted = wanted or may_set(m, info, args, kwargs)
    wanted = wanted and info not in m.entering and len(m.entering) <= MAX_DEPTH
    known = m.read_enough(info) if wanted and on_yield is None else None
    if not wanted or known is not None:
        m.inline(known or [])
        return symbol(f"{info.qualname}()@{m.tick()}", *args, *kwargs.values())

    frame = _frame(m, thing, args, kwargs, on_yield)
    kept = (m.items, m.live, m.here)
    m.items = []
    before = m.spent
    m.entering.append(info)
    m.entered.add(info)
    if one is not None:
        m.here = replace(m.here, stack=(*m.here.stack, one))
    _as_decorated(m, thing, info)
    try:
        rest = _run(m, frame, thing)
    finally:
        m.entering.pop()
        items = m.items
        m.items, m.live, m.here = kept
    if m.live == ALL:
        m.note_reading(info, m.spent - before, items)
    if thing.traits.cached:
        _once(m, thing, items, len(args) > (own is not None) or bool(kwargs))
    else:
        m.inline(items)
    return _told(m, info, _returned(m, frame, info, rest), one)


def _run(m: RankMachine, frame: RankFrame, thing: RankThing) -> int:
    """Its statements; the ranks that come to their end."""
    node, alone = thing.info.node, thing.traits.rank0
    with leaving.block(m, frame, node, "return") as block:
        m.execute(frame, node_of_function(node))
    rest = m.live
    leaving.join(m, frame, block, rest)
    if alone is not None:
        leaving.only_on(m, frame, block.mark, block.live, frozenset({alone}), frame.names)
    m.forget(block.mark, frame.names)
    return rest


def _told(
    m: RankMachine, info: FunctionDefinition, value: RankValue, one: RankCall | None
) -> RankValue:
    """What a function gives, which one of the helpers may have made the same on all ranks."""
    ours = info.name in COLLECTIVES and info.module.ours
    if info.name in OF_LOADERS and info.module.ours:
        for loader in value.things:
            loader.deals = True
    if ours and info.name in OWN and one is not None:
        return dealt(value, one)
    return mixing.helped(m, agreed(value), info.name, one) if ours else value


def _frame(
    m: RankMachine,
    thing: RankThing,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
    on_yield: Callable[[RankValue], None] | None,
) -> RankFrame:
    info: FunctionDefinition = thing.info
    cls = m.classes.get(info.owner) if info.owner is not None else None
    around = m.closures.get(thing) or (m.closures.get(cls) if cls is not None else None)
    frame = RankFrame(info.module, info, {}, around)
    frame.on_yield = on_yield
    frame.cls = info.owner
    bind_parameters(m, frame, info, args, kwargs, thing.defaults)
    return frame


def _once(m: RankMachine, thing: RankThing, items: list[Item], asked: bool) -> None:
    """A function under ``functools.cache``: a rank that has called it before gets what it gave.

    With arguments it is not known what was ``asked`` before, so nothing is said of it.
    """
    key = (thing.info, thing.receiver)
    known = ALL if asked else m.remembered.get(key, 0)
    m.remembered[key] = known | m.live
    if items and m.live & ~known:
        m.items.append(Inline(items, m.live & ~known))


def _as_decorated(m: RankMachine, thing: RankThing, info: FunctionDefinition) -> None:
    """What decorators of libraries do to the call: no gradients, rank 0 alone."""
    if thing.traits.no_grad:
        m.here = replace(m.here, grad=False)
    if thing.traits.rank0 is not None:
        test = RankValue((True, False), (), frozenset(), frozenset({thing.traits.rank0}))
        node = getattr(info.node, "decorator_list", [ast.Constant(value=True)])[0]
        m.here = m.here.under(RankGuard(test, node, info.module, True, RANK0))
        m.live &= RANK0


_HANDLED = words.WRAPPERS | {words.LOADER, words.SAMPLER, words.HF_TRAINER}


def _handles(
    m: RankMachine, args: tuple[RankValue, ...], kwargs: dict[str, RankValue], own: RankThing | None
) -> bool:
    """Whether a function is given what is worth to be followed, or says what a command line makes.

    That is what each rank has for itself, and a wrapped model, a loader, a Trainer, what was
    gathered, functions and classes that are worth entering, or what holds one of these.
    """
    held = [*args, *kwargs.values()]
    if own is not None and own.cls is not None and own.cls.inherits(*words.COMMANDLINES):
        return True
    kept = [one for value in held for thing in value.things for one in thing.attrs.values()]
    if own is not None:
        held += own.attrs.values()
    if any(value.origins for value in held):
        return True
    held += kept
    if any(_is_gathered(value) or any(map(_is_handled, value.things)) for value in held):
        return True
    return any(_is_worth(m, thing) for value in held for thing in _in(value))


def _is_handled(thing: RankThing) -> bool:
    """Whether it is a wrapper or a loader, a model that is wrapped or sharded by now, or a part of
    one."""
    while thing.kind == "attribute" and thing.receiver is not None:
        thing = thing.receiver
    return thing.name in _HANDLED or thing.sharded is not None or thing.wrapper is not None


def _is_gathered(value: RankValue) -> bool:
    """Whether it is a list of what a collective has put into it."""
    return any(text(one.atoms[0]) == SYNCED for one in value.items or ())


def _is_worth(m: RankMachine, thing: RankThing) -> bool:
    """Whether a definition is a function, or a class with one, that is worth entering."""
    if thing.kind == "function":
        return m.interest.enters(thing.info)
    if thing.kind != "class":
        return False
    return any(m.interest.enters(info) for info in thing.info.methods.values())


def _in(value: RankValue) -> tuple[RankThing, ...]:
    """What a value may be, or what a list or a dict of lists holds."""
    held = [*(value.items or ()), *(one for _, one in value.keys or ())]
    return value.things + tuple(thing for one in held for thing in _in(one))


def _returned(m: RankMachine, frame: RankFrame, info: FunctionDefinition, rest: int) -> RankValue:
    if frame.delegated is not None and len(frame.yielded) == 1:
        return frame.delegated
    if frame.yielded:
        return RankValue(symbol(f"{info.qualname}()").atoms, items=tuple(frame.yielded[:6]))
    sources: tuple[list[RankValue], list[RankValue]] = ([], [])
    why: set[Origin] = set()
    always = False
    for live, value, guards in frame.return_ranks:
        for rank in (0, 1):
            if live & (1 << rank):
                sources[rank].append(value)
        for guard in guards[len(m.here.guards) :]:
            why |= guard.test.origins
            always = always or any(o.kind not in ("rank", "local-rank") for o in guard.test.origins)
    for rank in (0, 1):
        if rest & (1 << rank) or not sources[rank]:
            sources[rank].append(NONE)
    made = merge(f"{info.qualname}()@{m.order}", sources, frozenset(why), always)
    if not why and not rest:
        narrowing.remember_returns(m, made, frame.return_ranks, len(m.here.guards))
    return made


def bind_parameters(
    m: RankMachine,
    frame: RankFrame,
    info: FunctionDefinition,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
    defaults_: dict[str, RankValue],
) -> None:
    """Give a function its arguments; what was not given has its default or is unknown."""
    spec = info.node.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults))
    defaults += spec.defaults
    kwargs = dict(kwargs)
    if "**" in kwargs:  # what else is given by name is not known: any default may be replaced
        defaults, defaults_ = [None] * len(positional), {}
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
        written = default if "**" not in kwargs else None
        value = given or _default(m, frame, info, parameter.arg, written, defaults_)
        m.hold(frame.names, parameter.arg, value)
    if spec.vararg is not None:
        rest = args[len(positional) :]
        frame.names[spec.vararg.arg] = RankValue(symbol("*args").atoms, items=tuple(rest))
    if spec.kwarg is not None:
        frame.names[spec.kwarg.arg] = RankValue(
            symbol("**kwargs").atoms, keys=tuple(kwargs.items())
        )


def takes(thing: RankThing, given: Given) -> bool:
    """Whether a function has parameters for what a call spells out, and is given all it needs."""
    spread = any(isinstance(one, ast.Starred) for one in given.node.args)
    spread = spread or any(one.arg is None for one in given.node.keywords)
    if thing.kind != "function" or given.star or spread:
        return True
    spec = thing.info.node.args
    own = thing.receiver is not None and not thing.traits.static
    positional = [one.arg for one in (*spec.posonlyargs, *spec.args)][own:]
    filled = positional[: len(given.args)]
    named = {*positional[len(given.args) :], *(one.arg for one in spec.kwonlyargs)}
    needed = positional[: max(len(positional) - len(spec.defaults), 0)]
    fits = spec.vararg is not None or len(given.args) <= len(positional)
    known = spec.kwarg is not None or given.kwargs.keys() <= named
    return fits and known and set(needed) <= {*filled, *given.kwargs}


def _default(
    m: RankMachine,
    frame: RankFrame,
    info: FunctionDefinition,
    name: str,
    default: ast.expr | None,
    known: dict[str, RankValue],
) -> RankValue:
    if name in known:
        return known[name]
    if default is None:
        return parameter_value(m, info, name)
    return m.evaluate(RankFrame(info.module, None, naming.namespace(m, info.module).attrs), default)


def parameter_value(m: RankMachine, info: FunctionDefinition, name: str) -> RankValue:
    """A parameter that nobody gives."""
    site = info.module.site(info.node)
    named = m.by_name(name, site)
    if named is not None:
        return named
    thing = configured.root(m, info, name, site) or RankThing("parameter", name, site)
    one = symbol(f"{info.qualname}({name})")
    return RankValue(one.atoms, (thing,))
