"""torch.distributed: groups, ranks and collectives, as the ranks see them."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.python.libraries import is_known
from ddpify.ranks import (
    assigning,
    mixing,
    sizes,
    words,
)
from ddpify.ranks.collective import Collective, is_world
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import DATA, LOCAL_RANK, RANK, SYNCED
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.required import is_older
from ddpify.ranks.results import result, with_origin
from ddpify.ranks.values import FALSE, NONE, TRUE, agreed, constant, same, symbol


def is_true(value: RankValue | None) -> bool:
    return value is not None and value.constant is True


# Known libraries that join process groups for those who ask them to train.
_LAUNCH = ("mmcv.", "mmengine.", "mmseg.", "mmdet.", "detectron2.", "fairseq.")
_OWN = "what this rank was sent"
_APART = {"reduce": "reduced on one rank", "all_to_all_single": _OWN, "reduce_scatter_tensor": _OWN}
_FITS = (f"{words.TRAINER}.", "transformers.Trainer")


def operation(one: RankCall) -> str:
    return one.name.removeprefix(words.DIST) if one.name.startswith(words.DIST) else one.name


def meet(m: RankMachine, f: RankFrame, one: RankCall) -> None:
    """All ranks meet at a call of a framework; not where it was made for some of them."""
    saves = one.name == words.SAVE_CHECKPOINT
    if not _of_a_group(one) and not (saves and is_older(m)):
        m.event(operation(one), one, one.node, f)


def _of_a_group(one: RankCall) -> bool:
    """``Fabric(strategy=DDPStrategy(process_group=group))``: who is in the group is not known."""
    made = [t.call for t in one.receiver.things] if one.receiver is not None else []
    given = [call.kwargs.get("strategy") for call in made if call is not None]
    things = (thing for value in given if value is not None for thing in value.things)
    return any(t.call is not None and "process_group" in t.call.kwargs for t in things)


def on_collective(m: RankMachine, f: RankFrame, shared: Collective) -> RankValue:
    one = shared.call
    m.opened = m.opened or one.method == "init_process_group"
    if shared.whole and not is_true(shared.given("use_local_synchronization")):
        m.event(one.method, one, one.node, f)
    if shared.functional:
        return result(one).clean() if one.name in words.AGREEING_CALLS else result(one)
    if one.method in words.AGREEING_OPS:
        _agree(m, f, shared)
    if one.method in _APART:
        _gets_its_own(m, f, shared, _APART[one.method])
    return NONE if shared.gives_none else result(one)


def _agree(m: RankMachine, f: RankFrame, shared: Collective) -> None:
    """Afterwards what it fills in is the same on all ranks."""
    value = shared.given(shared.filled)
    if value is None:
        return
    for thing in value.things:
        thing.synced = True
    for item in value.items or ():
        for thing in item.things:
            thing.synced = True
    node = shared.node(shared.filled)
    if isinstance(node, (ast.Name, ast.Attribute)):
        items = value.items
        if items is not None:
            items = tuple(_sent(item, shared.call) for item in items)
        whole = mixing.reduced(m, replace(value.clean(), items=items), shared)
        assigning.assign_quietly(m, f, node, whole)


def _sent(item: RankValue, call: RankCall) -> RankValue:
    """An element of a list that was sent: no longer what this rank had in its place."""
    if item == NONE:
        return symbol(SYNCED)
    if item.local and not item.known and not item.things and same(*item.atoms):
        return symbol(f"sent@{call.site}")
    return agreed(item)


def _gets_its_own(m: RankMachine, f: RankFrame, shared: Collective, why: str) -> None:
    """Afterwards what it fills in is another thing on each rank, or on one."""
    value, node = shared.given(shared.filled), shared.node(shared.filled)
    if value is not None and isinstance(node, (ast.Name, ast.Attribute)):
        own = with_origin(value, DATA, why, shared.call)
        assigning.assign_quietly(m, f, node, own)


def rank_of_group(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    group = one.arg(0, "group")
    if group is not None and not is_world(group):
        return with_origin(symbol(f"rank@{one.site}"), RANK, "get_rank()", one)
    return m.rank_value(RANK, "get_rank()", one.site)


def local_rank(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    return m.rank_value(LOCAL_RANK, one.name, one.site)


def world_size(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    group = one.arg(0, "group")
    whole = group is None or is_world(group)
    return constant(sizes.world_size()) if whole else None


def rank_and_size(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    rank = m.rank_value(RANK, one.name, one.site)
    return replace(result(one), items=(rank, constant(sizes.world_size())))


def true(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    return TRUE


def is_initialized(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """False before the group is opened: `if is_initialized(): return`.

    Of a project in which nothing opens one, code that is not seen does; after a call of a library
    that is not known, it may have. What was answered once holds until one is opened.
    """
    if m.opened or not (f.module.ours or m.interest.opens):
        return TRUE
    if m.unread and not f.module.ours and not m.asked:
        return symbol("is_initialized")  # the same on all ranks
    m.asked = True
    return FALSE


def note_opening(m: RankMachine, one: RankCall) -> None:
    """A call that has opened the process group, a framework's or one by this name, or may have."""
    name = one.name
    named = "init" in one.method and ("dist" in one.method or "process_group" in one.method)
    by_name = named and not name.startswith((words.DIST, "builtins."))
    by_name = by_name or one.method in ("init_device_mesh", "DeviceMesh")
    m.opened = m.opened or by_name or name in words.OPENERS or name.startswith(_FITS)
    unknown = not is_known(name) or name.startswith(_LAUNCH)
    m.unread = m.unread or (one.receiver is None and unknown)
