"""Calls: who is called, with what, and what comes back."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from ddpify.python import words as names
from ddpify.ranks import commandline, fields, functions, library, words
from ddpify.ranks.attributes import attribute_of
from ddpify.ranks.autograd import applied
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.functions import enter
from ddpify.ranks.given import Given
from ddpify.ranks.interest import draws
from ddpify.ranks.model import RANK0, RANK1, RankCall, RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.origins import IDENTITY
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.recording import record
from ddpify.ranks.values import key_of, of, per_rank, symbol

MAX_CALLEES = 4


def call(m: RankMachine, f: RankFrame, node: ast.Call, alone: bool = False) -> RankValue:
    """The value of a call expression."""
    receiver = None
    if isinstance(node.func, ast.Attribute):
        receiver = m.evaluate(f, node.func.value)
        callee = attribute_of(m, f, receiver, node.func.attr, node.func)
    else:
        callee = m.evaluate(f, node.func)
    return call_value(m, f, callee, given(m, f, node, receiver, alone))


def given(
    m: RankMachine,
    f: RankFrame,
    node: ast.Call,
    receiver: RankValue | None = None,
    alone: bool = False,
) -> Given:
    """The arguments of a call, unpacked as far as they are known."""
    args: list[RankValue] = []
    kwargs: dict[str, RankValue] = {}
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
            if "**" in kwargs:
                star, kwargs["**"] = True, _ranks_in(kwargs["**"])
        else:
            star = True
            kwargs["**"] = _ranks_in(value)  # under which names is not known
    return Given(node, receiver, tuple(args), kwargs, star, alone)


def _ranks_in(value: RankValue) -> RankValue:
    """The rank among arguments whose names are not known."""
    why = frozenset(origin for origin in value.all_origins if origin.kind in IDENTITY)
    return replace(symbol("**"), origins=why)


def call_value(m: RankMachine, f: RankFrame, callee: RankValue, given: Given) -> RankValue:
    """Call whatever ``callee`` may be, each with the ranks on which it may be that."""
    made: list[tuple[int, RankValue]] = []
    live = m.live
    things = callee.things
    if len(things) > 1:  # `getattr(module, name)(…)`: what cannot be called so is not meant
        things = tuple(one for one in things if functions.takes(one, given)) or things
    if len(things) > MAX_CALLEES:  # what is left out is rather a module than its wrapper
        things = tuple(sorted(things, key=lambda thing: thing.name not in words.WRAPPERS))
    for thing in things[:MAX_CALLEES]:
        ranks = callee.ranks_of(thing)
        if ranks & live == live:
            m.live = live
            made.append((ranks, _call_thing(m, f, thing, given)))
        elif ranks & live:
            _called_apart(m, f, callee, thing, given, made)
    if not made:
        func = given.node.func
        name = f".{func.attr}" if isinstance(func, ast.Attribute) else "?"
        return library.called(m, f, record(m, f, name, given))
    if len(made) == 1:
        return made[0][1]
    return per_rank(f"call@{f.module.site(given.node)}", made, callee.origins)


def _called_apart(
    m: RankMachine,
    f: RankFrame,
    callee: RankValue,
    thing: RankThing,
    given: Given,
    made: list[tuple[int, RankValue]],
) -> None:
    """``save = torch.save if rank == 0 else skip; save(…)``: as under a condition on the rank."""
    ranks = callee.ranks_of(thing)
    test = RankValue((bool(ranks & RANK0), bool(ranks & RANK1)), (), frozenset(), callee.origins)

    def run() -> None:
        made.append((ranks, _call_thing(m, f, thing, given)))

    m.branch(f, test, given.node.func, (run, lambda: None))


def applied_to(
    m: RankMachine, f: RankFrame, callee: RankValue, node: ast.AST, args: tuple[RankValue, ...]
) -> RankValue:
    """What ``map`` and the like get from a function that they call themselves."""
    made = node if isinstance(node, ast.Call) else ast.Call(ast.Constant(...), [], [])
    return call_value(m, f, callee, Given(ast.copy_location(made, node), args=args))


def _call_thing(m: RankMachine, f: RankFrame, thing: RankThing, given: Given) -> RankValue:
    if thing.kind == "function":
        own = given.receiver if thing.receiver is not None else None
        one = record(m, f, thing.name, given.on(own), thing.info)
        one.result = enter(m, f, thing, given.args, given.kwargs, one)
        return one.result
    if thing.kind == "class":
        one = record(m, f, thing.name, given.on(None))
        one.result = instantiate(m, f, thing, given.args, given.kwargs, one)
        starts = not thing.info.external_bases().isdisjoint(commandline.CALLS)
        return commandline.started(m, f, one) if starts else one.result
    if thing.kind == "external":
        known = given.receiver is not None and _is_object(given.receiver)
        bare = given if known else given.on(None)
        return library.called(m, f, record(m, f, thing.name, bare))
    if thing.name == names.PARTIAL and thing.call is not None and thing.call.args:
        inner = thing.call
        args, kwargs = (*inner.args[1:], *given.args), {**inner.kwargs, **given.kwargs}
        whole = replace(given, receiver=None, args=args, kwargs=kwargs)
        return call_value(m, f, inner.args[0], whole)
    if thing.kind == "attribute" and thing.receiver is not None:
        return _call_method(m, f, thing, given)
    return _call_object(m, f, thing, given)


def _is_object(value: RankValue) -> bool:
    return any(thing.kind not in ("external", "module") for thing in value.things)


def _call_method(m: RankMachine, f: RankFrame, thing: RankThing, given: Given) -> RankValue:
    owner = thing.receiver
    assert owner is not None
    if owner.kind == "class":
        return applied(m, f, owner, record(m, f, thing.name, given.on(None)))
    method = thing.name.rpartition(".")[2]
    known = _root(owner).kind == "result" and not owner.name.startswith(".")
    base = _base(owner.cls) if owner.cls is not None else ""
    if known:
        name = f"{owner.name}.{method}"
    elif owner.cls is not None:
        name = f"{owner.name}.{method}" if not base else f"{base}.{method}"
    else:
        name = f".{method}"
    if given.receiver is None or owner not in given.receiver.things:
        given = given.on(of(owner))  # `step = loader.sampler.set_epoch; step(1)`
    return library.called(m, f, record(m, f, name, given))


def _base(cls: ClassDefinition) -> str:
    """Whose method it is that no class of the project has: of a framework's class, if one is."""
    bases = tuple(cls.external_bases())
    known = (one for one in bases if one.startswith(("torch.", *words.FRAMEWORKS)))
    return next(known, bases[0] if bases else "")


def _root(thing: RankThing) -> RankThing:
    """What an attribute of an attribute is of, at the end."""
    while thing.kind == "attribute" and thing.receiver is not None:
        thing = thing.receiver
    return thing


def _call_object(m: RankMachine, f: RankFrame, thing: RankThing, given: Given) -> RankValue:
    """``thing(…)``: a model's forward, an object with ``__call__``, something unknown."""
    name = f"{thing.name}.__call__" if thing.kind != "parameter" else ".__call__"
    one = record(m, f, name, given.on(of(thing)))
    method = thing.cls.method("__call__") if thing.cls is not None else None
    forward = thing.cls.method("forward") if thing.cls is not None else None
    if method is not None:
        one.result = _entered(m, f, thing, method, one)
        return one.result
    if forward is None or not m.interest.narrow(forward):
        return library.called(m, f, one)
    entered = _entered(m, f, thing, forward, one)
    result = library.called(m, f, one)
    made = frozenset(thing for value in (result, entered) for thing in value.sources())
    one.result = replace(result, deps=made - frozenset(result.things))
    return one.result


def _entered(
    m: RankMachine, f: RankFrame, thing: RankThing, method: FunctionDefinition, one: RankCall
) -> RankValue:
    bound = RankThing("function", method.qualname, info=method, receiver=thing)
    one.target = method
    return enter(m, f, bound, one.args, one.kwargs, one)


def call_method(
    m: RankMachine,
    f: RankFrame,
    base: RankValue,
    name: str,
    node: Any,
    args: tuple[RankValue, ...] = (),
) -> RankValue | None:
    """``base.name()`` that Python calls itself; None if it is not of the project."""
    for thing in base.things:
        info = thing.cls.method(name) if thing.cls is not None else None
        if info is not None and thing.kind == "instance":
            bound = RankThing("function", info.qualname, info=info, receiver=thing)
            return enter(m, f, bound, args, {}, None)
    return None


def instantiate(
    m: RankMachine,
    f: RankFrame,
    thing: RankThing,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
    one: RankCall | None,
) -> RankValue:
    """An instance of a project class, its ``__init__`` run."""
    info: ClassDefinition = thing.info
    made = _new_object(m, f, thing, args, kwargs, one)
    method = info.method("__init__")
    if method is not None and _initialises(m, info, method):
        bound = RankThing("function", method.qualname, info=method, receiver=made)
        enter(m, f, bound, args, kwargs, one)
    if method is not None:
        fields.keep(method, made, args, kwargs)
    else:
        fields.fill(m, info, made, args, kwargs)
        call_method(m, f, of(made), "__post_init__", one.node if one else None)
    value = of(made, *args, *kwargs.values())
    held = fields.held(m, info, value, args, kwargs)
    if held is not None:
        made.held = held
    return held or value


def _new_object(
    m: RankMachine,
    f: RankFrame,
    thing: RankThing,
    args: tuple[RankValue, ...],
    kwargs: dict[str, RankValue],
    one: RankCall | None,
) -> RankThing:
    """An empty object, or what ``__new__`` makes."""
    method = thing.info.method("__new__")
    if method is not None and m.interest.enters(method):
        function = RankThing("function", method.qualname, info=method)
        found = enter(m, f, function, (of(thing), *args), kwargs, one)
        own = [t for t in found.things if t.kind == "instance" and t.cls is thing.info]
        if own:
            return own[0]
    site = one.site if one else thing.site
    return RankThing("instance", thing.name, site, call=one, cls=thing.info)


def _initialises(m: RankMachine, info: ClassDefinition, method: FunctionDefinition) -> bool:
    """Models are made of layers that say nothing about ranks; those that freeze some, or draw
    something, are read."""
    if any(base.startswith("torch.nn.") for base in info.external_bases()):
        return m.interest.narrow(method) or ".requires_grad" in method.text or draws(method)
    return True
