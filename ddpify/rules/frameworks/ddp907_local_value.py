"""DDP907: a number taken from this rank's shard passes for that of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.words import AGREEING_OPS, FSDP
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED
from ddpify.rules.frameworks.parts import sharding_of_weight
from ddpify.rules.frameworks.sharded import parameters_after
from ddpify.rules.frameworks.weights import (
    LayerUse,
    inner_reads,
    method_of,
    own_optimizers,
    shown_norms,
    stored,
    unshardable,
    use_of,
    used,
)
from ddpify.rules.shared.clips import measures
from ddpify.rules.shared.shards import BY_ENTRY, Shards
from ddpify.rules.shared.wrapped import parameters_of
from ddpify.settings import Settings
from ddpify.site import Site
from ddpify.strategies import of

_REDUCTIONS = frozenset("norm vector_norm sum mean max min amax amin std var prod median".split())
# What stays a tensor of shards.
_ON_THE_WAY = _REDUCTIONS | frozenset(
    "abs square pow sqrt detach float double half bfloat16 clone exp log neg flatten view stack"
    " cat".split()
)
_FUNCTIONS = frozenset(
    "torch.norm torch.sum torch.mean torch.sqrt torch.stack torch.cat torch.abs torch.max"
    " torch.linalg.vector_norm".split()
)
_CHOSEN = "torch.optim.Optimizer"  # getattr(torch.optim, name)
_END = "    dist.destroy_process_group()\n"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per use of weights, outside the forward, that goes wrong with shards."""
    if not of(settings).shards:
        return
    calls = once(tuple(used(facts)))
    for site, alike in calls.items():
        if not any(other.within(site) and other != site for other in calls):  # `p.pow(2).sum()`
            yield _of_shards(site, f"`{facts.text(alike[0].callee)}` is given weights of the model")
    for access in stored(facts):
        yield _of_shards(access.base_site, f"`{access.attribute}` of the model is replaced")
    for site, what in unshardable(facts):
        advice = "give it one dimension of its own, or use --strategy ddp"
        yield Finding("DDP907", site, f"{what} cannot be sharded", Severity.ERROR, advice=advice)
    yield from _compiled(facts)
    yield from _inner(facts)
    yield from _optimizers(facts)
    yield from _norms(facts)


def _compiled(facts: Facts) -> Iterable[Finding]:
    """Where more is compiled, or otherwise, than a model whose graphs end at each block."""
    shards, registered = Shards.of(facts), False
    for call in facts.calls:
        owners = (call.receiver or NOTHING).of(Kind.WRAPPED, Kind.MODEL)
        if any(shards.is_sharded(owner, call.order) for owner in owners):
            registered |= any(use_of(*one) is LayerUse.LAYERS for one in method_of(call))
    for call in facts.named("torch.compile", ".compile"):
        given = call.receiver if call.name == ".compile" else call.arg(0, "model")
        models = (given or NOTHING).of(Kind.MODEL, Kind.WRAPPED)
        why = _uncompilable(call, models, registered) if models else ""
        if why:
            yield Finding(
                "DDP907",
                call.site,
                f"a model that is compiled {why} is not sharded",
                Severity.ERROR,
                advice="use torch.compile(model) without it, or --strategy ddp",
            )


def _inner(facts: Facts) -> Iterable[Finding]:
    for site in inner_reads(facts):
        yield _of_shards(site, "`_orig_mod` is the model, and its weights")


def _uncompilable(call: Call, models: Iterable[Thing], registered: bool) -> str:
    """What of the call to torch.compile does not go with hooks that gather weights."""
    whole_graph, mode = call.kwargs.get("fullgraph"), call.kwargs.get("mode")
    if whole_graph is not None and whole_graph.const is not False:
        return "as one graph, which ends where weights are gathered,"
    if mode is not None and mode.const not in (None, "default", "max-autotune-no-cudagraphs"):
        return "into CUDA graphs, which keep the place of weights,"
    if call.kwargs.get("options") is not None or call.star or len(call.args) > 1:
        return "with options that are not looked at"
    parts = [one for one in models if one.kind is Kind.MODEL and whole(one) is not one]
    if call.name == "torch.compile" and parts:
        return "in part"
    if call.name == "torch.compile" and registered:
        return "and of which methods compute beside `forward`"
    return ""


def _optimizers(facts: Facts) -> Iterable[Finding]:
    """Those that need more of a weight than the entries that a rank has."""
    for call in own_optimizers(facts):
        yield _of_shards(call.site, f"`{facts.text(call.callee)}` may compute with whole weights")
    optimizers = (t for step in facts.steps for t in (step.receiver or NOTHING).of(Kind.OPTIMIZER))
    for optimizer in dict.fromkeys(optimizers):
        if optimizer.name == _CHOSEN:
            yield Finding(
                "DDP907",
                optimizer.born,
                "which optimizer this is cannot be told: on shards, Muon trains something else",
                Severity.NOTE,
                advice="choose one that steps entry by entry, as SGD, Adam and AdamW do",
            )
        elif optimizer.name not in BY_ENTRY:
            yield _of_shards(optimizer.born, f"`{optimizer.name}` may compute with whole weights")


def _norms(facts: Facts) -> Iterable[Finding]:
    for call in shown_norms(facts):
        yield Finding(
            "DDP907",
            call.site,
            "the norm comes as a distributed tensor, which no format string takes",
            Severity.WARNING,
            (edit(facts, How.REPLACE, call.site, "whole_tensor({})"),),
        )


def _of_shards(site: Site, what: str) -> Finding:
    return Finding(
        "DDP907",
        site,
        f"{what}, which are this rank's shards outside of its forward",
        Severity.ERROR,
        advice="do it before the optimizer is made, in the forward, or with --strategy ddp",
    )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per ``.item()`` of a reduction over sharded parameters."""
    for call, model in _clipped(run):
        made = ((model.site, "sharded here"),) if model.site is not None else ()
        yield Finding(
            "DDP907",
            call.site,
            "it takes the norm of this rank's shards for that of all: each rank clips by another",
            Severity.ERROR,
            advice="call model.clip_grad_norm_() of FullyShardedDataParallel",
            because=made,
        )
    for call in run.calls:
        value = _taken(call)
        if value is None or not _reduced(value):
            continue
        origin = next(chain(parameters_after(value), _weights(run, value, call)), None)
        if origin is not None and _pure(value) and not _agreed(run, call):
            yield Finding(
                "DDP907",
                call.site,
                "this is the value of this rank's shard, not of the whole tensor",
                Severity.ERROR,
                advice="add .full_tensor() before .item(), on all ranks",
                because=((origin.site, "these parameters are sharded"),),
            )


def _clipped(run: Run) -> Iterator[tuple[RankCall, RankThing]]:
    """What clips by the norm of this rank's shards: FullyShardedDataParallel's parameters are no
    DTensors, and know of no others."""
    for call in run.named("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm"):
        models = parameters_of(call.args[0]) if call.args else set()
        sharded = [one for one in models if one.name == FSDP and one.call is not None]
        if len(sharded) == len(models) == 1 and not _is_whole(sharded[0]) and not measures(call):
            yield call, sharded[0]


def _is_whole(model: RankThing) -> bool:
    """Whether the wrapper may shard nothing: ``sharding_strategy=ShardingStrategy.NO_SHARD``."""
    way = model.call.arg(2, "sharding_strategy") if model.call is not None else None
    names = {name.rpartition(".")[2] for name in way.names()} if way is not None else set()
    return way is not None and (not names or "NO_SHARD" in names)


def _weights(run: Run, value: RankValue, call: RankCall) -> Iterator[RankCall]:
    """The calls that had sharded, by then, a model of which it takes a weight by its name."""
    gathered = any(one.order < call.order for one in run.methods("unshard"))
    for thing in () if gathered or _in_a_module(call) else value.sources():
        shard = sharding_of_weight(thing)
        if shard is not None and shard.order < call.order:
            yield shard


def _in_a_module(call: RankCall) -> bool:
    """Whether it may be in a forward, where weights are whole."""
    entered = (one.target for one in call.stack)
    owners = (one.owner for one in entered if one is not None and one.owner is not None)
    return any("torch.nn.Module" in owner.external_bases() for owner in owners)


def _taken(call: RankCall) -> RankValue | None:
    """The expression that is turned into a Python number."""
    if call.method == "item" and call.receiver is not None:
        return call.receiver
    return call.args[0] if call.name == "builtins.float" and len(call.args) == 1 else None


def _reduced(value: RankValue) -> bool:
    """Whether an expression is tensor arithmetic with a reduction in it, and nothing else."""
    ways = [_way(thing) for thing in value.things]
    return bool(ways) and all(way is not None for way in ways) and any(ways)


def _way(thing: RankThing) -> bool | None:
    """Whether a reduction led to this; None if something unknown did."""
    if thing.kind == "attribute":
        whole = not thing.name.endswith((".grad", ".data")) and sharding_of_weight(thing) is None
        return None if whole else False
    call = thing.call
    if thing.kind != "result" or call is None:
        return None
    before = call.args[0] if call.name in _FUNCTIONS and call.args else call.receiver
    if before is None or call.method not in _ON_THE_WAY:
        return None
    held = [*before.things, *(t for item in before.items or () for t in item.things)]
    ways = [_way(one) for one in held]
    return None if None in ways else call.method in _REDUCTIONS or any(ways)


def _pure(value: RankValue) -> bool:
    """Whether nothing on the way gathered the shards, or took the local part on purpose."""
    spoiled = ("full_tensor", "to_local", "redistribute", "clip_grad_norm_", "__call__", "unshard")
    return not any(thing.name.rpartition(".")[2] in spoiled for thing in value.sources())


def _agreed(run: Run, item: RankCall) -> bool:
    """Whether the number is reduced over the ranks afterwards."""
    made = set(item.result.things) if item.result is not None else set()
    return any(
        call.order > item.order
        and call.name.startswith("torch.distributed.")
        and call.method in AGREEING_OPS
        and any(not made.isdisjoint(arg.sources()) for arg in call.given)
        for call in run.calls
    )


RULE = Rule(
    "DDP907",
    "local-value-of-dtensor",
    "Reductions of a sharded parameter or gradient are themselves unfinished: .item() gives the"
    " part of this rank (measured: norms .767 and .658 where 1.011 is right) without an error. Only"
    " .full_tensor() finishes them. What clip_grad_norm_ returns is complete; but parameters of"
    " FullyShardedDataParallel are no DTensors, and torch.nn.utils clips them by the norm of this"
    " rank's shards alone.",
    "pytorch#170862, torchtitan#766; BUGS M06",
    check,
    lint=lint,
    bad=(
        changed(
            SHARDED,
            (
                _END,
                "    norms = [p.norm().item() for p in model.parameters()]  # DDP907\n"
                '    if dist.get_rank() == 0:\n        torch.save(norms, "norms.pt")\n' + _END,
            ),
        ),
        changed(
            SHARDED,
            (
                _END,
                "    head = model.head\n"
                "    size = head.weight.detach().abs().mean().item()  # DDP907\n"
                '    if dist.get_rank() == 0:\n        torch.save(size, "size.pt")\n' + _END,
            ),
        ),
    ),
    good=(
        changed(
            SHARDED,
            (
                _END,
                "    norms = [p.norm().full_tensor().item() for p in model.parameters()]\n"
                '    if dist.get_rank() == 0:\n        torch.save(norms, "norms.pt")\n' + _END,
            ),
        ),
        changed(
            SHARDED,
            (
                "    fully_shard(model)\n",
                "    size = model.head.weight.norm().item()\n    fully_shard(model)\n",
            ),
            (_END, "    print(size, model.head.weight.norm().full_tensor().item())\n" + _END),
        ),
    ),
)
