"""Methods and parts of a model that training calls beside its forward: they go through the wrapper.

A forward of the wrapper makes it ready for one backward. So what one backward goes back through is
one call of a model, or calls of which the last is given what the others made: the wrapper, told to
look for parameters that are not used, finds from there all that are. ::

    features = through_wrapper(net, "encode")(x)  # net.encode(x)
    loss = criterion(through_wrapper(net, "head")(features), y)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ddpify.facts import roles
from ddpify.facts.details import Bypass
from ddpify.facts.events import Call
from ddpify.facts.fresh import method_of
from ddpify.facts.gradients import behind
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import Model
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.values import Kind, Thing, Value, one
from ddpify.source import Site


def routes(m: Machine, models: Iterable[Model]) -> dict[Site, tuple[Site, bool]]:
    """Where such calls may go through the wrapper: whose model, and whether others come with it.

    ``m`` reads the program with its models wrapped.
    """
    trained = {thing.born for model in models if model.home for thing in model.things}
    calls = _calls(m)
    found: dict[Site, tuple[Site, bool]] = {}
    refused: set[Site] = set()
    for backward in roles.backwards(roles.calls_of(m)):
        values = [value for value in (backward.receiver, *backward.args) if value is not None]
        outputs = {output for value in values for output in behind(flat_deps(value))}
        for born in trained:
            ours = [one for one in calls if born in one.models]
            behind_it = [one for one in ours if one.output in outputs]
            sites = {one.call.site for one in behind_it if one.goes_around}
            if sites and _is_one_pass(behind_it, ours, backward):
                found |= {site: (born, len(behind_it) > 1) for site in sites}
            else:
                refused |= sites
    return {site: one for site, one in found.items() if site not in refused}


@dataclass(frozen=True)
class _Pass:
    """A call of a model, of its method or of a part, with gradient."""

    output: Thing
    call: Call
    models: frozenset[Site]
    goes_around: bool


def _calls(m: Machine) -> list[_Pass]:
    """Each as it was recorded: once for a place, though it is read in several rounds."""
    recorded = {_place(call): call for call in roles.calls_of(m)}
    found = {f.output: (f.call, _born([f.model]), False) for f in roles.forwards_of(m)}
    for thing in m.made(Kind.FORWARD):
        if (detail := thing.detail(Bypass)) is not None:
            found[thing] = (detail.call, _born(_models(detail.call)), True)
    passes = [
        _Pass(output, recorded.get(_place(call), call), models, around)
        for output, (call, models, around) in found.items()
    ]
    return [one for one in passes if not one.call.where.no_grad]


def _place(call: Call) -> tuple[Site, ...]:
    return (*call.where.stack, call.site)


def _is_one_pass(calls: list[_Pass], ours: list[_Pass], backward: Call) -> bool:
    """Whether the last of the calls is given what the others made, and a backward follows it.

    No other call of the model comes between, for which the wrapper would be made ready instead.
    """
    ordered = sorted(calls, key=lambda one: one.call.order)
    places = {_place(one.call) for one in ordered}
    around = {loop.site for loop in backward.where.loops()}
    inside = {loop.site for one in ordered for loop in one.call.where.loops()} - around
    first, last = ordered[0].call.order, ordered[-1].call
    between = [one for one in ours if first < one.call.order < backward.order]
    if inside or len(places) < len(ordered) or any(one not in calls for one in between):
        return False
    if last.order > backward.order or not all(_is_routable(o) for o in ordered if o.goes_around):
        return False
    given = {o for v in (*last.args, *last.kwargs.values()) for o in behind(flat_deps(v))}
    return all(one.output in given for one in ordered[:-1])


def _models(call: Call) -> tuple[Thing, ...]:
    return call.receiver.of(Kind.MODEL, Kind.WRAPPED) if call.receiver is not None else ()


def _born(models: Iterable[Thing]) -> frozenset[Site]:
    return frozenset(roles.whole(model).born for model in models)


def _is_routable(one: _Pass) -> bool:
    """A method of the project, or a layer, of one model that has a name where it is called."""
    call = one.call
    things = call.receiver.things if call.receiver is not None else ()
    whole = [t for t in things if t.kind is Kind.WRAPPED]
    name = call.name.rpartition(".")[2]
    known = len(things) == 1 == len(whole) and call.receiver_site is not None
    return known and name.isidentifier() and _part(_inner(things[0]), name) is not None


def _inner(thing: Thing) -> Thing:
    return thing.unwrapped


def _part(model: Thing, name: str) -> Thing | None:
    """A layer of a model, or the model with a method for its forward."""
    layers = model.attrs[name].of(Kind.MODEL) if name in model.attrs else ()
    if len(layers) == 1:
        return layers[0]
    method = method_of(model, name)
    if method is None or not isinstance(model.ref, ClassInfo) or method.decorators:
        return None
    value = model.ref.lookup(name)
    assert value is not None
    info = replace(model.ref, env={**model.ref.env, "forward": value})
    made = Thing(Kind.MODEL, model.born, model.name, model.attrs, ref=info, part_of=model)
    made.details = model.details
    return made


def routed(m: Machine, f: Frame, thing: Thing, name: str, site: Site) -> Value | None:
    """The wrapper as what gives ``thing.name(…)``."""
    part = _part(_inner(thing), name) if thing.kind is Kind.WRAPPED else None
    if part is None:
        return None
    if part.part_of is None:
        part.part_of = _inner(thing)
    made = m.make(Kind.WRAPPED, f, site, f"{thing.name}.{name}")
    made.inner = one(part)
    made.details = thing.details
    return one(made)
