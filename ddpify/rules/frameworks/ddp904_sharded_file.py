"""DDP904: rank 0 writes its shard as if it were the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import NOTHING, Kind, Value
from ddpify.names import OF_SHARDS
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.other_libraries import ENGINE
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED
from ddpify.rules.frameworks.sharded import sharded_here
from ddpify.rules.shared.saving import saves_of
from ddpify.rules.shared.shards import Shards
from ddpify.rules.shared.wrapped import exclusive
from ddpify.settings import Settings
from ddpify.strategies import of

_GETTERS = frozenset({"get_model_state_dict", "get_optimizer_state_dict", "get_state_dict"})
_GATHERING = ("deepspeed.zero.GatheredParameters",)
_HOLDERS = (Kind.TUPLE, Kind.DICT, Kind.ITERATOR)
_END = "    dist.destroy_process_group()\n"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per file that would get a model, or weights, as they are: shards."""
    if not of(settings).shards:
        return
    shards = Shards.of(facts)
    for call in saves_of(facts):
        value = call.arg(0, "obj")
        leaves = [*_leaves(value)] if value is not None else []
        if _is_whole(facts, call) and not settings.fsdp_recompute:
            yield _copied(facts, call)
        elif any(shards.are(one, call.order) and not _is_older(facts, one) for one in leaves):
            yield Finding(
                "DDP904",
                call.site,
                "this rank's shards would be written, of a model or of copies of its weights",
                Severity.ERROR,
                advice="save the model's state_dict(), then run again",
            )


def _is_older(facts: Facts, value: Value) -> bool:
    """``getattr(model.config, name)``, of a model that is not sharded yet."""
    since = min(Shards.of(facts).since.values(), default=0)
    orders = {call.site: call.order for call in facts.named("builtins.getattr")}
    return bool(value.things) and all(
        thing.kind is Kind.UNKNOWN and orders.get(thing.born, since) < since
        for thing in value.things
    )


def _is_whole(facts: Facts, call: Call) -> bool:
    """Whether a file gets a sharded model itself."""
    value, shards = call.arg(0, "obj") or NOTHING, Shards.of(facts)
    sharded = [one for one in value.of(Kind.WRAPPED) if shards.is_sharded(one, call.order)]
    compiled = facts.named("torch.compile", ".compile")  # which keeps what is not copied
    all_of_it = bool(sharded) and len(sharded) == len(value.things)
    return bool(call.arg_sites) and all_of_it and not compiled


def _copied(facts: Facts, call: Call) -> Finding:
    """A sharded model is of a class that ``fully_shard`` made, which pickle does not find again."""
    fix = edit(facts, How.REPLACE, call.arg_sites[0], "whole_model({})")
    message = "the file would get a model of shards, of a class that cannot be pickled"
    return Finding("DDP904", call.site, message, Severity.ERROR, (fix,))


def _leaves(value: Value, depth: int = 4) -> Iterator[Value]:
    """A value, or what it holds."""
    for thing in value.things:
        held = [*(thing.items or ()), *(thing.keys or {}).values()]
        held += [thing.inner] if thing.inner is not None and thing.kind in _HOLDERS else []
        for one in held if depth else ():
            yield from _leaves(one, depth - 1)
        if not held:
            yield value
    if not value.things:
        yield value


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per file that gets a shard of the model or of the optimizer's state."""
    for save in run.named("torch.save"):
        asked = save.asked  # of our helper, which writes to a path of its own first
        payload, path = save.arg(0, "obj"), asked.arg(1, "f" if asked is save else "path")
        if asked is not save and asked.method in OF_SHARDS:  # takes them out
            continue
        if payload is None or (path is not None and spread(path)):
            continue
        shard = _shard(payload)
        if shard is not None and not _told_apart(run, shard):
            yield Finding(
                "DDP904",
                asked.site,
                "the file holds this rank's shard of the weights, the rest is lost",
                Severity.ERROR,
                advice="get_model_state_dict(model, options=StateDictOptions(full_state_dict=True,"
                " cpu_offload=True)) on all ranks, or torch.distributed.checkpoint.save",
                because=((shard.site, "a state dict of shards"),),
            )


def _told_apart(run: Run, shard: RankCall) -> bool:
    """Whether the other arm of a condition gets the state of a sharded model."""
    gets = (one for one in run.calls if one.method in _GETTERS)
    return any(exclusive(one, shard) or _returned(one, shard) for one in gets)


def _returned(one: RankCall, shard: RankCall) -> bool:
    """``if sharded: … return``, and then what is for the others."""
    nodes = {guard.node for guard in shard.guards}
    under = any(guard.node not in nodes for guard in one.guards)
    return one.function is not None and one.function is shard.function and under


def _shard(payload: RankValue) -> RankCall | None:
    """The call that gave shards, unless something on the way made them full."""
    sources = list(payload.sources())
    if any(thing.name.endswith((".full_tensor", "full_tensor")) for thing in sources):
        return None
    return next((t.call for t in sources if t.call is not None and _gives_shards(t)), None)


def _gives_shards(thing: RankThing) -> bool:
    call = thing.call
    assert call is not None
    if call.module.ours:  # `unsharded`, which gathers them
        return False
    if call.method in _GETTERS:
        model = call.arg(0, "model")
        return model is not None and sharded_here(model, call.order) and not _is_full(call)
    if call.method != "state_dict" or call.receiver is None or call.args or call.kwargs:
        return False
    owners = call.receiver.things
    return any(_is_sharded(t, call.order) for t in owners) or _is_partitioned(call, owners)


def _is_partitioned(call: RankCall, owners: tuple[RankThing, ...]) -> bool:
    """Whether it is of the model in an engine of DeepSpeed that keeps a part of each weight."""
    engines = [t.receiver.call for t in owners if t.name == f"{ENGINE}.module" and t.receiver]
    stages = {_stage(engine) for engine in engines if engine is not None}
    return stages == {3} and not call.within(*_GATHERING)


def _stage(engine: RankCall) -> object:
    """The stage of ZeRO that an engine was made with, if the program spells it out."""
    config = engine.kwargs.get("config")
    for name in ("zero_optimization", "stage"):
        config = dict(config.keys or ()).get(name) if config is not None else None
    return config.constant if config is not None else None


def _is_sharded(owner: RankThing, order: int) -> bool:
    """A sharded model, or an optimizer over its parameters."""
    if owner.sharded is not None:
        return owner.sharded.order < order
    made = owner.call
    if made is None or not owner.name.startswith("torch.optim.") or "lr_sched" in owner.name:
        return False
    given = made.arg(0, "params")
    return given is not None and sharded_here(given, made.order)


def _is_full(call: RankCall) -> bool:
    """Whether the options ask, or may ask, for full tensors."""
    options = call.kwargs.get("options")
    if options is None:
        return call.star
    for thing in options.things:
        if thing.call is not None and thing.name.endswith("StateDictOptions"):
            flag = thing.call.kwargs.get("full_state_dict")
            if flag is None:
                flag = thing.call.arg(0, "")
            return thing.call.star or (flag is not None and flag.constant is not False)
    return True


RULE = Rule(
    "DDP904",
    "sharded-state-dict-saved",
    "state_dict() of a fully_shard model and of its optimizer holds DTensors; torch.save writes"
    " this rank's part of them. The file of rank 0 has half of the rows (measured: 4 of 8) and"
    " loads into no plain model: 'got mixed torch.Tensor and DTensor', with assign=True in the"
    " first forward. So it is with what ZeRO-3 leaves in engine.module: empty weights.",
    "torch.distributed.checkpoint.state_dict; pytorch#136336, lightning#17702; BUGS K07",
    check,
    lint=lint,
    bad=(
        changed(
            SHARDED,
            (
                _END,
                "    if dist.get_rank() == 0:\n"
                '        torch.save(model.state_dict(), "model.pt")  # DDP904\n' + _END,
            ),
        ),
    ),
    good=(
        changed(
            SHARDED,
            (
                "from torch.distributed.fsdp import",
                "from torch.distributed.checkpoint.state_dict import StateDictOptions,"
                " get_model_state_dict\nfrom torch.distributed.fsdp import",
            ),
            (
                _END,
                "    options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
                "    weights = get_model_state_dict(model, options=options)\n"
                "    if dist.get_rank() == 0:\n"
                '        torch.save(weights, "model.pt")\n' + _END,
            ),
        ),
        changed(
            SHARDED,
            (
                _END,
                '    torch.save(model.state_dict(), f"model-{dist.get_rank()}.pt")\n' + _END,
            ),
        ),
    ),
)
