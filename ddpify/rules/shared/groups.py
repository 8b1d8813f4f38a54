"""Groups of some ranks: one that is another on another rank, or that its root is no member of."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Final

from ddpify.ranks import sizes, words
from ddpify.ranks.collective import Collective, exchange, is_world
from ddpify.ranks.members import members as numbers_of
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import IDENTITY, Origin
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.shared.complaints import Complaint
from ddpify.rules.shared.lengths import length, stays
from ddpify.rules.shared.roots import OF_ALL
from ddpify.site import Site

_MADE: Final = f"{words.DIST}new_group"
_ROOTS: Final = ("src", "dst")


def wrong(shared: Collective) -> Complaint | None:
    """What is wrong with the group of a call, if anything is."""
    return _mixed(shared) or _foreign(shared) or _short(shared)


def other_members(call: RankCall) -> Complaint | None:
    """A group that all ranks make, each with members of its own."""
    members, local = call.arg(0, "ranks"), call.arg(4, "use_local_synchronization")
    if call.name != _MADE or call.ranks != 3 or members is None or local is not None or call.star:
        return None
    alone = text(members.atoms[0]).startswith("[") and len(members.items or ()) == 1  # `[rank]`
    if alone or any(guard.test.by_rank for guard in call.conditions):
        return None
    origin = min((o for o in members.all_origins if o.kind in IDENTITY), default=None, key=_place)
    if origin is None:
        return None
    return Complaint(
        call.site,
        "each rank makes the group that it is in itself: the n-th new_group() has other members on"
        " other ranks, a hang or groups that are mixed up",
        "make all groups on all ranks, in the same order, and keep the one that the rank is in",
        ((origin.site, origin.told),),
    )


def out_of_step(run: Run) -> Iterator[Complaint]:
    """A group in which all ranks meet, and that is the n-th new_group() of one rank and another one
    of the other: it is each rank's n-th that belong together."""
    made = [[c for c in run.named(_MADE) if c.ranks & (1 << rank)] for rank in (0, 1)]
    if len(made[0]) != len(made[1]) or any(one.loops for held in made for one in held):
        return
    for call in run.calls if made[0] != made[1] else ():
        shared = exchange(call)
        group = shared.group if shared is not None and call.everywhere else None
        own = [_made_here(group, rank, made[rank]) for rank in (0, 1)] if group else []
        turn = min((one for one in own if one is not None), default=None)
        if turn is not None and None not in own and own[0] != own[1]:
            first, second = made[0][turn], made[1][turn]
            if first is not second and not others(first, second):
                yield Complaint(
                    second.site,
                    "this meets a new_group() of rank 0 that is used for something else: each"
                    " rank's n-th one is the same group, so that what ranks exchange is mixed up",
                    "make the groups in one order on all ranks",
                    ((first.site, "rank 0 makes this one"), (call.site, "the groups are mixed up")),
                )
                return


def _made_here(group: RankValue, rank: int, made: list[RankCall]) -> int | None:
    """The number, among those of a rank, of the new_group() whose group it uses."""
    calls = [thing.call for thing in group.things_on(rank)]
    return made.index(calls[0]) if len(calls) == 1 and calls[0] in made else None


def _place(origin: Origin) -> Site:
    return origin.site


def _mixed(shared: Collective) -> Complaint | None:
    """The group of all ranks on one rank, and one of some on the other."""
    value = shared.given("group")
    if value is None or shared.call.ranks != 3 or not value.by_rank:
        return None
    kinds = {_is_world(value, rank) for rank in (0, 1)}
    if kinds != {True, False}:
        return None
    return Complaint(
        shared.call.site,
        f"some ranks call {shared.call.method}() in a group, the others in that of all ranks: a"
        " hang",
        "give all ranks that take part the same group",
    )


def _is_world(value: RankValue, rank: int) -> bool | None:
    """Whether a group is that of all ranks; None if that is not known."""
    if value.atoms[rank] is None:
        return True
    things = value.things_on(rank)
    if not things:
        return None
    if all(thing.name == _MADE for thing in things):
        return False
    plain = RankValue(value.atoms, things)
    return True if is_world(plain) else None


def _foreign(shared: Collective) -> Complaint | None:
    """A root that is not in the group: it is a rank of all, not one of the group."""
    value = shared.given("group")
    for name in _ROOTS:
        root = shared.given(name)
        number = root.constant if root is not None and not root.by_rank else None
        if value is None or not isinstance(number, int) or shared.given(f"group_{name}"):
            continue
        made = [thing.call for thing in value.things if thing.name == _MADE and thing.call]
        out = [one for one in made if _leaves_out(one, shared.call, number)]
        if out and len(made) == len(value.things):
            return Complaint(
                shared.call.site,
                f"`{name}={number}` is a rank among all, and not in every such group: a crash",
                f"give `{name}` the group's own first rank, or `group_{name}=0`",
                ((out[0].site, "the group"),),
            )
    return None


def _leaves_out(made: RankCall, call: RankCall, root: int) -> bool:
    """Whether a group, or another one that is made at the same place, is without this rank."""
    members = made.arg(0, "ranks")
    if members is None:
        return False
    named = numbers_of(made, 0)
    if named is not None:
        return all(root not in one for one in named)
    apart = any(guard.test.by_rank for guard in call.conditions)
    return _is_of_round(members) and not apart


def is_one_of_several(made: RankCall) -> bool:
    """Whether a call makes a group for each round of a loop, of other members in each."""
    members = made.arg(0, "ranks")
    return made.name == _MADE and members is not None and _is_of_round(members)


def others(one: RankCall, other: RankCall) -> bool:
    """Whether two new_group() that meet are of other members."""
    named = (numbers_of(one, 0) or (), numbers_of(other, 1) or ())
    return all(named) and set(named[0][0]) != set(named[1][0])


def _short(shared: Collective) -> Complaint | None:
    """A list with an element for each rank of all, or for fewer than are in the group."""
    name, group = OF_ALL.get(shared.call.method, ""), shared.group
    value = shared.given(name) if name else None
    made = group.made_by(_MADE) if group is not None else None
    node = shared.node(name) if name else None
    if value is None or made is None or made.call is None or node is None:
        return None
    for rank in (0, 1):
        inside, number = numbers_of(made.call, rank) or (), length(value, rank)
        if len(inside) != 1 or rank not in inside[0] or not shared.call.ranks & (1 << rank):
            continue
        fits = any(sizes.in_worlds(operator.eq, number, len(inside[0])))
        if number and not fits and stays(shared.call, node):
            return Complaint(
                shared.call.site,
                f"`{name}` has another length than the group has members: a crash",
                "give one element for each member of the group",
                ((made.call.site, "the group"),),
            )
    return None


def _is_of_round(members: RankValue) -> bool:
    """Whether there is one group for each round of a loop, from another number on:
    ``list(range(a, b))``."""
    made = members.made_by("builtins.list", "builtins.range")
    if made is None or made.call is None or not made.call.args:
        return False
    first = made.call.args[0]
    if made.name == "builtins.list":
        return _is_of_round(first)
    return "element@" in getattr(first.atoms[0], "key", "")
