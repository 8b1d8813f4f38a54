"""Calls: who is called, with what, and what comes back."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.facts import (
    buffers,
    commands,
    containers,
    criteria,
    fields,
    filled_inputs,
    functional,
    inner_losses,
    library,
    library_classes,
    library_losses,
    methods,
    outputs,
    sums,
    unread,
    whole_forwards,
)
from ddpify.facts.attributes import attribute
from ddpify.facts.call_events import Arguments, arguments_of, event_of
from ddpify.facts.details import MakingCall, OpenForward, OpenLoss, Partial, made_by
from ddpify.facts.events import Access, Call, Forward
from ddpify.facts.gradients import with_graph
from ddpify.facts.joining import computed, flat_deps, flat_measure, join
from ddpify.facts.layer_axes import axis_behind, with_states
from ddpify.facts.open_losses import may_compute_loss, returns_one
from ddpify.facts.protocol import Machine
from ddpify.facts.recurrent import RECURRENT
from ddpify.facts.routes import routed
from ddpify.facts.rows import per_sample
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.unread import unread_base, unread_by
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value, one
from ddpify.source import Site

CALLABLE_MODELS = (Kind.MODEL, Kind.WRAPPED)


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
    arguments = arguments_of(m, f, node)
    event = event_of(m, f, node, callee, receiver, arguments, alone)
    for thing in (t for v in arguments.all() for t in v.things):
        thing.hop(event.site, "passed")
    event.unread = unread_by(callee, receiver, event)
    event.result = _dispatch(m, f, node, callee, receiver, arguments, event)
    event.result = _of_unknown(arguments, event.result)
    if event.unread:
        event.result = _through_unread(m, f, event)
    event.result = buffers.fill(m, f, node, event) or event.result
    m.record(event)
    sums.in_place(m, f, node, event)
    return event.result


def _of_unknown(arguments: Arguments, result: Value) -> Value:
    """What is made of ``*(sums / count).tolist()`` is of samples, if anything is known of it."""
    given = computed(*arguments.unknown)
    if result.things or given.measure is Measure.UNIFORM:
        return result
    return computed(result, given, measure=Measure.MIXED)


def _through_unread(m: Machine, f: Frame, event: Call) -> Value:
    """What unread code made of samples says so on its way, to the loss perhaps."""
    given = computed(*event.args, *event.kwargs.values())
    said = event.receiver is not None and event.receiver.dep(Kind.UNREAD)
    if said or not any(t.kind in (Kind.BATCH, Kind.FORWARD) for t in given.deps):
        return unread.told_again(event.receiver, event.result)
    unread.keep(event.receiver, given)
    mark = m.make(Kind.UNREAD, f, event.site, event.unread)
    mark.describe(MakingCall(event))
    return event.result.but(deps=event.result.deps | {mark})


def _dispatch(
    m: Machine,
    f: Frame,
    node: ast.Call,
    callee: Value,
    receiver: Value | None,
    arguments: Arguments,
    event: Call,
) -> Value:
    results = _through_wrapper(m, f, receiver, event) if event.site in m.target.routes else []
    for thing in callee.things if not results else ():
        result = _call_thing(m, f, thing, arguments, event)
        if result is not None:
            results.append(result)
    if results:
        return outputs.any_of(results, event.site)
    if isinstance(node.func, ast.Attribute) and receiver is not None:
        own = receiver.of(Kind.CLASS) if node.func.attr == "from_pretrained" else ()
        if own:  # of the project: it is made as a call of it makes it, with a configuration
            return apply(m, f, Value(own), (NOTHING,), event.site)
        return methods.call_method(m, f, receiver, node.func.attr, event)
    return library.call_unknown(m, f, None, event)


def _through_wrapper(m: Machine, f: Frame, receiver: Value | None, event: Call) -> list[Value]:
    """What a method of a model gives that the wrapper calls as its forward."""
    name = event.name.rpartition(".")[2]
    wrapped = receiver.of(Kind.WRAPPED) if receiver is not None else ()
    found = [routed(m, f, thing, name, event.site) for thing in wrapped]
    return [forward(m, value.things[0], event) for value in found if value is not None]


def _call_thing(
    m: Machine, f: Frame, thing: Thing, arguments: Arguments, event: Call
) -> Value | None:
    arguments = _with_bound(thing, arguments, event)
    if thing.part_of is not None and event.name.startswith("."):
        whole = thing.part_of.part_of is None and thing.part_of.kind in CALLABLE_MODELS
        return forward(m, thing.part_of, event) if whole and event.name == ".forward" else None
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
        return criteria.criterion_result(m, f, thing, event)
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
    given = m.enter(f, info, args, arguments.kwargs, event.site, sites, arguments.kwarg_sites)
    commands.run_group(m, f, info, event)
    return given


def forward(m: Machine, model: Thing, event: Call) -> Value:
    """A model is called: its output has the batch axis of its input.

    What it makes of a list or dict of inputs, targets among them perhaps, is not known.
    """
    output = m.make(Kind.FORWARD, event.where.frame, event.site, f"{model.serial}")
    m.record(Forward(m.tick(), model, event, output))
    values = (*event.args, *event.kwargs.values())
    deps = frozenset().union(*[flat_deps(v) for v in values]) if values else frozenset()
    local = [v for v in values if flat_measure(v) is not Measure.UNIFORM]
    single = {flat_measure(v) for v in local} == {Measure.ENTRY}
    batched = any(v.measure is Measure.SAMPLES or (per_sample(v) and not single) for v in values)
    batched = batched or (m.target.whole_batches and model.kind is Kind.WRAPPED)
    # Of inputs alone: what is made of inputs and targets may be a loss, which has no rows.
    mixed = Measure.ENTRY if single else Measure.MIXED
    measure = Measure.SAMPLES if batched else mixed if local else Measure.UNIFORM
    axis = axis_behind(model, local)
    rows, blocks = _is_per_sample(local), _blocks(local)
    deps |= with_graph(m, event, output)
    whole = Value((), deps, measure, rows=rows, axis=axis, blocks=blocks)
    if batched and model.name in RECURRENT:
        return with_states(model, whole, event.site)
    f, whole_reading = event.where.frame, whole_forwards.with_means
    if not batched:
        return whole_reading(m, f, model, whole, whole, event) if local else whole
    if returns_one(model) if whole.rows else may_compute_loss(model):
        output.describe(OpenLoss())
        whole = replace(whole, rows=False)
    guards, trains = event.where.guards, not event.where.no_grad
    if trains and not m.target.whole_batches and filled_inputs.sees(m, model, event):
        return replace(whole, measure=Measure.MIXED, rows=False, blocks=0)
    each = outputs.separate(model, whole, output, guards, trains)
    each = library_losses.with_loss(m, model, each, event)
    known = inner_losses.with_losses(m, f, model, each, event)
    if output.detail(OpenLoss):
        return whole_reading(m, f, model, each, known, event)
    return known


def _is_per_sample(local: list[Value]) -> bool:
    return len(local) == 1 and per_sample(local[0])


def _blocks(local: list[Value]) -> int:
    whole = len(local) == 1 and local[0].measure is Measure.SAMPLES
    return local[0].blocks if whole else 0


def instantiate(m: Machine, f: Frame, info: ClassInfo, arguments: Arguments, event: Call) -> Value:
    """A class of the project is called."""
    kind = library_classes.instance_kind(info)
    thing = m.make(kind, f, event.site, info.name)
    if thing.ref not in (None, info):  # another class of this name may be meant as well
        thing = m.make(kind, f, event.site, f"{info.module.name}.{info.name}")
    thing.ref = info
    init = info.lookup("__init__") if kind is not Kind.MODEL or m.builds(info) else None
    if init is not None or kind is not Kind.MODEL:  # of a model made again it is what it was
        thing.attrs.clear()
    library.describe(m, thing, event)
    deps = frozenset[Thing]().union(*[flat_deps(v) for v in arguments.all()])
    made_by(thing, event, deps)
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
    arguments = arguments_of(m, f, node)
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
    if node.func.attr == "__init__" and library_classes.makes_its_own(f.self_thing):
        event = event_of(m, f, node, NOTHING, one(f.self_thing), arguments, False)
        library.told(f.self_thing, event)
    if unread_base(owner):  # what it is given goes where nobody looks
        event = event_of(m, f, node, NOTHING, one(f.self_thing), arguments, False)
        event.unread = unread_base(owner)
        m.record(event)
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
