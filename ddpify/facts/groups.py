"""Which modules are trained together: the alternatives one variable may hold are one model."""

from __future__ import annotations

from ddpify.facts import roles
from ddpify.facts.details import Wrapper
from ddpify.facts.events import Bind
from ddpify.facts.names_of_models import held_together, is_of_rounds
from ddpify.facts.protocol import Machine
from ddpify.facts.values import Kind, Thing
from ddpify.python.words import DDP, FULLY_SHARD
from ddpify.source import Site


def groups(m: Machine) -> list[tuple[tuple[Thing, ...], tuple[Thing, ...]]]:
    """(models, optimizers): models that are alternatives of one variable belong together."""
    stepped = {o for call in roles.steps(roles.calls_of(m)) for o in roles.stepped(call)}
    together = _made_together(m)
    groups: list[tuple[set[Thing], set[Thing]]] = []
    for optimizer in sorted(stepped, key=lambda t: t.serial):
        for held in _alternatives(m, roles.models_of_optimizer(optimizer)):
            alternatives = held.union(*(together.get(model, ()) for model in held))
            joined = [g for g in groups if g[0] & alternatives]
            if joined:
                joined[0][0].update(alternatives)
                joined[0][1].add(optimizer)
            else:
                groups.append((set(alternatives), {optimizer}))
    return [
        (tuple(sorted(g[0], key=lambda t: t.serial)), tuple(sorted(g[1], key=lambda t: t.serial)))
        for g in groups
    ]


def _made_together(m: Machine) -> dict[Thing, tuple[Thing, ...]]:
    """The models that one call may make: ``getattr(models, options.arch)()``."""
    found: dict[Thing, tuple[Thing, ...]] = {}
    for call in roles.calls_of(m):
        made = tuple(t for t in call.result.of(Kind.MODEL) if t.born == call.site)
        if len(made) > 1:
            found |= {model: made for model in made}
    return found


def _alternatives(m: Machine, models: tuple[Thing, ...]) -> list[set[Thing]]:
    """Split an optimizer's models by variable: what one name may hold is one model.

    In rounds of a loop a name holds one after the other: ``for net in (maker, judge)``. Those
    that have no other name are one model, and those of one list.
    """
    left = set(models)
    held = [e for e in m.events if isinstance(e, Bind) and not left.isdisjoint(e.value.things)]
    found = _merged([e for e in held if not is_of_rounds(m, e)], left)
    left = left.difference(*found)
    found += _merged_sets([one.intersection(left) for one in held_together(m)])
    left = left.difference(*found)
    found += _merged(held, left)
    left = left.difference(*found)
    return found + [{t} for t in sorted(left, key=lambda t: t.serial)]


def _merged(binds: list[Bind], models: set[Thing]) -> list[set[Thing]]:
    return _merged_sets([models.intersection(bind.value.things) for bind in binds])


def _merged_sets(sets: list[set[Thing]]) -> list[set[Thing]]:
    found: list[set[Thing]] = []
    for held in sets:
        merged = [g for g in found if g & held]
        if held and not merged:
            found.append(set(held))
        elif held:
            merged[0].update(held)
    return found


def wrapped(m: Machine) -> set[Thing]:
    """Models the program itself wraps, or shards."""
    found = sharded(m)
    for call in roles.calls_of(m):
        for outer in call.result.of(Kind.WRAPPED):
            wrapper = outer.detail(Wrapper)
            if outer.inner or (wrapper is not None and wrapper.name.endswith("DataParallel")):
                found.add(roles.whole(outer))
    return found


def sharded(m: Machine) -> set[Thing]:
    """Models the program itself shards, in place."""
    given = (c.args[0] for c in roles.calls_of(m) if c.name == FULLY_SHARD and c.args)
    return {roles.whole(thing) for value in given for thing in value.of(Kind.MODEL)}


def in_ddp(m: Machine) -> dict[Site, bool]:
    """The expressions that are a model in DDP, and whether they always are.

    None where something else wraps a model, too.
    """
    wrappers = {t.detail(Wrapper) for t in m.made(Kind.WRAPPED)} - {None}
    if not wrappers or any(one is None or one.name != DDP for one in wrappers) or sharded(m):
        return {}
    found = {site: value for site, value in m.values.items() if value.of(Kind.WRAPPED)}
    return {site: len(v.of(Kind.WRAPPED)) == len(v.things) for site, v in found.items()}
