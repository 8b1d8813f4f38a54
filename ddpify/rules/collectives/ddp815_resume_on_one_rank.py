"""DDP815: only some ranks load a checkpoint into what all of them train."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import ALL, RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.exchanges import exchanges
from ddpify.rules.shared.wrapped import comes_after, wraps

# A state that one rank has may be set on all of them: broadcast_from_rank0=True.
_SENDING = frozenset(
    "broadcast broadcast_object_list _sync_module_states set_model_state_dict set_state_dict"
    " set_optimizer_state_dict".split()
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per load_state_dict of some ranks that nothing makes up for."""
    for call in run.methods("load_state_dict"):
        if call.everywhere or call.receiver is None or not call.ranks:
            continue
        told = next((w for t in call.receiver.things if (w := _made(run, t, call))), None)
        if told is None or _others_too(run, call):
            continue
        if _trained_later(run, call):
            yield _finding(call, told)
        elif (met := _computed_later(run, call)) is not None:
            yield _mixed(call, met)


def _made(run: Run, thing: RankThing, load: RankCall) -> RankCall | None:
    """What made a thing, or the model that it is a part of, one of all ranks before the load."""
    whole = (wrap for wrap in wraps(run) if wrap.holds(thing) and comes_after(load, wrap))
    return _shared(thing, load) or next((wrap.call for wrap in whole), None)


def _shared(thing: RankThing, load: RankCall) -> RankCall | None:
    """What made ``thing`` one of all ranks before the load: its wrapper, or its optimizer's.

    ``fully_shard`` also after it: each rank keeps its part of what it has, and sends nothing.
    """
    if thing.sharded is not None:
        return thing.sharded
    if thing.name in words.WRAPPERS:
        return thing.call
    if thing.wrapper is not None and thing.wrapper.call is not None:
        return thing.wrapper.call if thing.wrapper.call.order < load.order else None
    if thing.name.startswith("torch.optim.") and thing.call is not None:
        for value in thing.call.args[:1]:
            for one in value.sources():
                if one.name in words.WRAPPERS or one.wrapper is not None:
                    return thing.call
    return None


def _trained_later(run: Run, load: RankCall) -> bool:
    """Whether all ranks go on with a wrapped model afterwards, be it in the loop's next round."""
    return any(
        call.order > load.order or any(loop in call.loops for loop in load.loops)
        for call in exchanges(run)
        if call.everywhere and call.method == "backward"
    )


def _computed_later(run: Run, load: RankCall) -> RankCall | None:
    """The collective that puts together what all ranks compute with the model afterwards."""
    loaded = set(load.receiver.things) if load.receiver is not None else set()
    loaded |= {thing.wrapper for thing in loaded if thing.wrapper is not None}
    forwards = {
        call
        for call in run.methods("__call__", "forward")
        if call.order > load.order and call.everywhere and call.receiver is not None
        if not loaded.isdisjoint(call.receiver.things)
    }
    for met in run.calls if forwards else ():
        if collective(met) is not None:
            made = {thing.call for value in met.given for thing in value.sources()}
            if not forwards.isdisjoint(made):
                return met
    return None


def _mixed(load: RankCall, met: RankCall) -> Finding:
    return Finding(
        "DDP815",
        load.parted.site,
        "only some ranks load these weights, and all compute with the model afterwards: what is"
        " put together is of two models",
        Severity.ERROR,
        advice="load on all ranks",
        because=((met.site, "put together here"),),
    )


def _others_too(run: Run, load: RankCall) -> bool:
    """Whether the other ranks load into the same, or get what was loaded."""
    things = set(load.receiver.things) if load.receiver is not None else set()
    ranks = load.ranks
    for call in run.methods("load_state_dict"):
        if call.receiver is not None and things & set(call.receiver.things):
            ranks |= call.ranks
    later = any(call.order > load.order and _sends(call, things) for call in run.calls)
    return ranks == ALL or later


def _sends(call: RankCall, things: set[RankThing]) -> bool:
    """Whether a call may carry what was loaded: the model's or optimizer's own tensors."""
    if call.method not in _SENDING:
        return False
    return any(not things.isdisjoint(value.sources()) for value in call.given)


def _finding(load: RankCall, shared: RankCall) -> Finding:
    guard = next((g for g in reversed(load.guards) if g.ranks != ALL), None)
    sharded = shared.name == words.FULLY_SHARD
    because = [
        (shared.site, f"{'sharded over' if sharded else 'shared by'} all ranks from here on")
    ]
    if guard is not None:
        because.append((guard.site, "the condition"))
    return Finding(
        "DDP815",
        load.site,
        "only some ranks load the checkpoint: the others"
        + (" keep their shards of what they had" if sharded else _TRAIN_ON),
        Severity.ERROR,
        advice="load on all ranks"
        + ("" if sharded else ", or on one before DistributedDataParallel(), which broadcasts"),
        because=tuple(because),
    )


_TRAIN_ON = " train on with what they had, and equal gradients do not bring them together"
_LOAD = 'model.load_state_dict(torch.load("model.pt", map_location="cpu"))'
_LOAD_INNER = _LOAD.replace("model.load", "model.module.load")
_STEP = "model(torch.ones(1, 4)).mean().backward()"

_FSDP = "from torch.distributed.fsdp import fully_shard"

RULE = Rule(
    "DDP815",
    "resume-on-one-rank",
    "DDP copies rank 0's weights to the others once, when it wraps. What rank 0 alone loads later,"
    " into the model or the optimizer, stays with it: gradients are averaged, weights are not"
    " (measured: 2.94 against -0.06, for ever). A first epoch that only rank 0 knows shifts every"
    " collective (measured: two epochs apart). Loading before the wrap is fine for DDP. fully_shard"
    " copies nothing: of each weight the rows of rank 0 are then of the checkpoint, and the others"
    " of a new model (measured; no error).",
    "DistributedDataParallel docstring; pytorch#75870; BUGS C14",
    lint=lint,
    bad=(
        on_ranks(
            f"model = DDP(nn.Linear(4, 1))\nif rank == 0:\n" f"    {_LOAD_INNER}  # DDP815\n{_STEP}"
        ),
        on_ranks(  # after the backward, in a loop
            f"model = DDP(nn.Linear(4, 1))\nfor epoch in range(2):\n    {_STEP}\n"
            f"    if rank == 0:\n        {_LOAD_INNER}  # DDP815"
        ),
        on_ranks(
            "model = DDP(nn.Linear(4, 1))\noptimizer = torch.optim.Adam(model.parameters())\n"
            "resume(optimizer, rank)\n" + _STEP,
            """

            def resume(optimizer, rank):
                if rank != 0:
                    return
                state = torch.load("optimizer.pt", map_location="cpu")
                optimizer.load_state_dict(state)  # DDP815
            """,
        ),
        on_ranks(  # before it is sharded
            f"model = nn.Linear(4, 1)\nif rank == 0:\n    {_LOAD}  # DDP815\n"
            f"fully_shard(model)\n{_STEP}",
            _FSDP,
        ),
        on_ranks(
            f"model = prepared(rank)\n{_STEP}",
            f"""
            {_FSDP}

            def prepared(rank):
                model = nn.Linear(4, 1)
                if rank == 0:
                    {_LOAD}  # DDP815
                return fully_shard(model)
            """,
        ),
    ),
    good=(
        on_ranks(f"model = nn.Linear(4, 1)\n{_LOAD}\nfully_shard(model)\n{_STEP}", _FSDP),
        on_ranks(
            f"model = nn.Linear(4, 1)\nif rank == 0:\n    {_LOAD}\n"
            "for weight in model.parameters():\n    dist.broadcast(weight.data, 0)\n"
            f"fully_shard(model)\n{_STEP}",
            _FSDP,
        ),
        on_ranks(
            f"model = nn.Linear(4, 1)\nif rank == 0:\n    {_LOAD}\n"
            "state = model.state_dict() if rank == 0 else {}\nfully_shard(model)\n"
            f"set_model_state_dict(model, state, options=_OF_RANK0)\n{_STEP}",
            f"""
            {_FSDP}
            from torch.distributed.checkpoint.state_dict import (
                StateDictOptions,
                set_model_state_dict,
            )

            _OF_RANK0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
            """,
        ),
        on_ranks(
            f"model = nn.Linear(4, 1)\nif rank == 0:\n    {_LOAD}\nmodel = DDP(model)\n{_STEP}"
        ),
        on_ranks(f"model = DDP(nn.Linear(4, 1))\n{_LOAD_INNER}\n{_STEP}"),
    ),
    fixes=False,
)
