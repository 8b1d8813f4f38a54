"""What to gather from all ranks so that a loss that couples its batch is that of the whole batch.

Where the sums and means that an operation is of can be found, their tensors are gathered; else the
arguments of the innermost call around it that gets nothing of a batch but whole rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ddpify.facts import batch_order, roles
from ddpify.facts.coupling import coupled
from ddpify.facts.details import Coupling
from ddpify.facts.events import Call, Where
from ddpify.facts.locality import is_local
from ddpify.facts.model import Gather, TrainingLoop
from ddpify.facts.output_rows import of_several
from ddpify.facts.pooled import meets_rows, own_ways
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.shares import once_per_batch
from ddpify.facts.tracing import Trace
from ddpify.facts.values import OF_ONE_RANK, Kind, Thing, Value
from ddpify.source import Site


def losses(m: Machine) -> list[Value]:
    """What backward passes start from."""
    calls = roles.backwards(roles.calls_of(m))
    return [value for call in calls for value in (call.receiver, *call.args) if value is not None]


def gathers(m: Machine) -> tuple[tuple[Gather, Site], ...]:
    """What to gather, each with the operation that asks for it."""
    calls = roles.calls_of(m)
    training, own = roles.training_loops(calls), own_ways(m)
    at: dict[tuple[Site, ...], list[Call]] = defaultdict(list)
    for call in calls:
        at[call.way].append(call)
    found: dict[Gather, Site] = {}
    for thing in coupled(losses(m)):
        for gather in _traced(m, training, thing) or _climbed(m, training, thing, at, own):
            found.setdefault(gather, thing.born)
    return tuple(sorted(found.items(), key=lambda pair: pair[0].site))


def _traced(m: Machine, training: tuple[TrainingLoop, ...], thing: Thing) -> list[Gather]:
    """What the operation is of, where it stands."""
    path = thing.born.path
    node = m.tree(path).expression(thing.born)
    if node is None or not _detail(thing).certain:
        return []

    def together(where: Where) -> bool:
        return where.no_grad or once_per_batch(m, training, where)

    return Trace(m, path, together).gathers(node) or []


def _climbed(
    m: Machine,
    training: tuple[TrainingLoop, ...],
    thing: Thing,
    at: Mapping[tuple[Site, ...], list[Call]],
    own: frozenset[tuple[Site, ...]],
) -> list[Gather]:
    """The arguments of the innermost call around the operation that gets whole rows."""
    stack = _detail(thing).where.stack
    for depth in range(len(stack), 0, -1):
        around = at.get(stack[:depth], [])
        if len(around) != 1 or not once_per_batch(m, training, around[0].where):
            continue
        if around[0].way in own:
            return []
        sites = _rows(m, around[0])
        given = (*around[0].args, *around[0].kwargs.values())
        ordered = bool(sites) and batch_order.counts(m, around[0], given)
        if sites and not ordered and not meets_rows(m, around[0]):
            return [Gather(site, "whole_batch({})") for site in sites]
    return []


def _rows(m: Machine, call: Call) -> list[Site]:
    """The arguments to gather; nothing where one of them is of this rank and has no rows."""
    given = list(zip(call.arg_sites, call.args, strict=False))
    given += [
        (call.kwarg_sites[name], value)
        for name, value in call.kwargs.items()
        if name in call.kwarg_sites
    ]
    if call.star or call.bound or len(given) != len(call.args) + len(call.kwargs):
        return []
    local = [(site, value) for site, value in given if is_local(m, value) or value.of(Kind.BATCH)]
    rest = [value for site, value in given if (site, value) not in local]
    if any(not has_rows(value) for _, value in local) or any(v.dep(*OF_ONE_RANK) for v in rest):
        return []
    if any(of_several(m, value) for _, value in local):
        return []
    if not any(value.dep(Kind.FORWARD) for _, value in local):
        return []  # the model is called inside
    return [site for site, _ in local]


def _detail(thing: Thing) -> Coupling:
    detail = thing.detail(Coupling)
    assert detail is not None
    return detail
