"""What builds a model that is to be sharded, where ranks > 0 have its shapes alone. ::

with built_on_main():
    model = Net(8, 2)
    model.apply(draw)
    model.to(device)
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ddpify.facts.events import Call
from ddpify.facts.homes import MOVES
from ddpify.facts.model import Facts, Home, Model
from ddpify.facts.prepared import DRAWS, writes
from ddpify.facts.roles import whole
from ddpify.facts.through import AT_REST
from ddpify.facts.values import Kind, Value
from ddpify.rules.model.shapes import asks_values
from ddpify.source import Site

_KINDS = (Kind.MODEL, Kind.WRAPPED, Kind.PARAMETERS)
_LOOPS = (ast.For, ast.While)
_SHAPES = (
    {f".{name}" for name in """modules named_modules children named_children numel nelement size dim
    element_size requires_grad_ is_floating_point compile keys values items append extend insert
    add_module register_module""".split()}
    | {f".{name}" for name in AT_REST - {"state_dict", "load_state_dict"}}
)
_READS = frozenset(f"builtins.{name}" for name in ("float", "int", "bool"))
_CASTS = ("torch.float", "torch.double", "torch.half", "torch.bfloat16")
_AROUND = frozenset({"torch.compile", "torch.nn.DataParallel", "torch.numel"})


@dataclass(frozen=True)
class Building:
    """The statements that build a model, and what speaks against shapes, each with its place."""

    statements: tuple[Site, ...]
    against: tuple[tuple[Site, str], ...]


def building(facts: Facts, home: Home, models: Sequence[Model]) -> Building:
    """What builds the models that are sharded at a home."""
    born = {thing.born for one in models for thing in one.things}
    end = max((c.order for c in facts.calls if _is_in(c, home.statement)), default=0)
    early = [c for c in facts.everywhere if c.order <= end and _is_of(c, born)]
    built = [c for c in early if _builds(c, born)]
    places = [(call, _place(facts, home, call)) for call in built]
    statements = tuple(dict.fromkeys(place for _, place in places if place is not None))
    against = [
        (c.site, "builds it, and is not in the function in which it is sharded")
        for c, place in places
        if place is None
    ]
    against += _in_loops(places, born)
    against += _moved_before(built)
    against += [(c.site, "gives it memory already") for c in built if c.name == ".to_empty"]
    against += [(c.site, "asks for its values") for c in early if c not in built and _asks(c)]
    against += [
        (forward.call.site, "calls it before it is sharded")
        for forward in facts.forwards
        if forward.order <= end and whole(forward.model).born in born
    ]
    for site in statements:
        node = facts.tree(site).statement(site)
        against += asks_values(facts, site.path, [node] if node is not None else [])
    return Building(statements, tuple(dict.fromkeys(against)))


def _is_in(call: Call, statement: Site) -> bool:
    return any(site.within(statement) for site in (*call.where.stack, call.site))


def _is_of(call: Call, born: Collection[Site]) -> bool:
    """Whether a call makes one of these models, or is given one; not what a constructor does."""
    if any(site in born for site in call.where.stack):
        return False
    given = (*call.args, *call.kwargs.values(), *((call.receiver,) if call.receiver else ()))
    return call.site in born or any(_has(value, born) for value in given)


def _has(value: Value, born: Collection[Site]) -> bool:
    for one in (*value.things, *value.dep(*_KINDS)):
        owners = one.inner.things if one.kind is Kind.PARAMETERS and one.inner else (one,)
        if any(whole(owner).born in born for owner in owners):
            return True
    return False


def _builds(call: Call, born: Collection[Site]) -> bool:
    return call.site in born or call.name in MOVES - _SHAPES or _draws(call)


def _draws(call: Call) -> bool:
    drawn = call.name == ".apply" or call.name.startswith(DRAWS) or writes(call.name)
    return drawn and call.name not in _SHAPES


def _asks(call: Call) -> bool:
    """Whether a call may need what weights are, more than their shapes.

    The inside of a project's own function is among the calls.
    """
    if call.name in _SHAPES | _AROUND or call.target is not None:
        return False
    if call.receiver is not None and call.name.startswith("."):
        return True
    given = (*call.args, *call.kwargs.values())
    whole_one = any(t.kind in (Kind.MODEL, Kind.WRAPPED) for v in given for t in v.things)
    own = call.name.startswith("builtins.") and call.name not in _READS
    return not own and (whole_one or call.name.startswith("torch.") or call.name in _READS)


def _place(facts: Facts, home: Home, call: Call) -> Site | None:
    """The statement in the function of a home that makes this call, with the loops around it."""
    tree = facts.tree(home.statement)
    end = tree.statement(home.statement)
    scope = tree.function(end) if end is not None else None
    for site in (*call.where.stack, call.where.statement):
        node = tree.statement(site) if site.path == home.statement.path else None
        if node is None or tree.function(node) is not scope:
            continue
        for above in tree.ancestors(node):
            if above is scope:
                break
            if isinstance(above, _LOOPS) and not home.statement.within(tree.site(above)):
                node = above
        return tree.site(node)
    return None


def _in_loops(
    places: Sequence[tuple[Call, Site | None]], born: Collection[Site]
) -> Iterator[tuple[Site, str]]:
    """Models that are made anew go on with streams that ranks have apart by then."""
    for call, place in places:
        loops = call.where.loops() if call.site in born and place is not None else ()
        if any(place is not None and not loop.site.within(place) for loop in loops):
            yield call.site, "is built in a loop"


def _moved_before(built: Sequence[Call]) -> Iterator[tuple[Site, str]]:
    """What draws on the device: on rank 0 it would draw on the CPU, which gives other numbers."""
    moves = [c.order for c in built if c.name in (".to", ".cuda") and not _is_cast(c)]
    for call in built:
        if _draws(call) and any(order < call.order for order in moves):
            yield call.site, "changes weights on the device, to which they come when sharded"


def _is_cast(call: Call) -> bool:
    given = [thing.name for value in call.args for thing in value.things]
    return bool(given) and all(name.startswith(_CASTS) for name in given)
