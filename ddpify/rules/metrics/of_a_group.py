"""Sums over a part of the ranks that are divided by the number of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ddpify.ranks.collective import Collective, collective
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import SYNCED, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.sizes import is_world_size
from ddpify.ranks.values import key_of
from ddpify.ranks.words import DIST
from ddpify.rules.shared.by_ranks import PRODUCTS, power
from ddpify.rules.shared.groups import is_one_of_several
from ddpify.site import Site

_ALL_REDUCE: Final = f"{DIST}all_reduce"
_SCALES: Final = {f"{name}_": factor for name, factor in PRODUCTS.items()}


def of_a_group(run: Run) -> Iterator[tuple[Site, RankCall]]:
    """Where such a sum is divided, and the call that made it; not one that is reduced again, over
    the others, or of what was."""
    found = [one for call in run.named(_ALL_REDUCE) if (one := collective(call)) is not None]
    sums = [one for one in found if _is_of_group(one)]
    for shared in sums:
        key = _key(shared)
        again = [one for one in found if one.call.site != shared.call.site and key in _key(one)]
        site = None if again or not key else _divided(run, shared.call, key)
        if site is not None:
            yield site, shared.call


def _is_of_group(shared: Collective) -> bool:
    """Whether it adds up over one of several groups that the program makes."""
    group, op = shared.given("group"), shared.given("op")
    made = [thing.call for thing in group.things] if group is not None else []
    adds = op is None or op.names() == {f"{DIST}ReduceOp.SUM"}
    return adds and bool(made) and all(one is not None and is_one_of_several(one) for one in made)


def _key(shared: Collective) -> str:
    """What is summed; "" of what another reduction has made the same: a sum of sums, maybe."""
    value = shared.given(shared.filled)
    atom = value.atoms[0] if value is not None else None
    return atom.key if isinstance(atom, Symbol) and atom.key != SYNCED else ""


def _divided(run: Run, call: RankCall, key: str) -> Site | None:
    """Where the function that made a sum divides it by the number of all ranks, or what is made
    of the quotient goes."""
    for one in run.calls:
        if one.order < call.order or one.function is not call.function:
            continue
        factor = _SCALES.get(one.method)
        scaled = one.receiver is not None and key_of(one.receiver) == key
        if factor and scaled and len(one.args) == 1 and power(one.args[0]) * factor == -1:
            return one.site
        if any(_is_quotient(value, key) for value in one.inputs):
            return one.site
    stores = (one for one in run.stores if one.order > call.order)
    held = (one for one in stores if one.function is call.function)
    return next((one.site for one in held if _is_quotient(one.value, key)), None)


def _is_quotient(value: RankValue, key: str) -> bool:
    parts: tuple[Any, ...] = value.atoms[0].parts if isinstance(value.atoms[0], Symbol) else ()
    divided = len(parts) == 3 and parts[0] == "Div" and isinstance(parts[1], Symbol)
    return divided and parts[1].key == key and is_world_size(parts[2])
