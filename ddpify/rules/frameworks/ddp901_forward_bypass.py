"""DDP901: a sharded model computes without its forward hooks."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.blocks import blocks
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Home
from ddpify.facts.roles import whole
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.rules.edits import once
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED
from ddpify.rules.frameworks.sharded import shard_of
from ddpify.rules.frameworks.weights import (
    LayerUse,
    is_closed,
    method_of,
    part_of,
    use_of,
)
from ddpify.rules.shared.fields import computing, holds_parameters
from ddpify.rules.shared.shards import Shards
from ddpify.rules.shared.wrapped import receives
from ddpify.rules.shared.written import attribute_called
from ddpify.settings import Settings
from ddpify.strategies import of

_FROM = "torch.distributed.fsdp"
_REGISTER = "register_fsdp_forward_method"
_SUMMON = "torch.distributed.fsdp.FullyShardedDataParallel.summon_full_params"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per method or layer of a model that computes beside its forward."""
    if not of(settings).shards:
        return
    yield from _hidden(facts)
    shards = Shards.of(facts)
    for calls in once(facts.calls).values():
        for call in calls:
            owners = (call.receiver or NOTHING).of(Kind.WRAPPED, Kind.MODEL)
            if not any(shards.is_sharded(owner, call.order) for owner in owners):
                continue  # nor is one that is not sharded yet
            methods = method_of(call) if call.name != ".forward" else []
            if methods:
                yield from _beside(facts, settings, call, methods)
            elif part_of(call) or call.name == ".forward":
                yield _refused(facts, call, "runs without gathering the weights of the model")


def _hidden(facts: Facts) -> Iterable[Finding]:
    """Outputs in objects that are not looked into: no backward is told to gather the weights."""
    for forwards in once(tuple(f.call for f in facts.training_forwards)).values():
        if any(map(is_closed, forwards[0].result.of(Kind.INSTANCE))):
            yield Finding(
                "DDP901",
                forwards[0].site,
                "the model's tensors come in an object that torch does not look into: the backward"
                " would find no weights (RuntimeError: setStorage)",
                Severity.ERROR,
                advice="return a tensor, tuple, dict, named tuple or data class",
            )


def _beside(
    facts: Facts, settings: Settings, call: Call, methods: list[tuple[FunctionInfo, Thing]]
) -> Iterable[Finding]:
    uses = {use_of(*one) for one in methods}
    owners = {whole(owner).born for _, owner in methods}
    models = [m for m in facts.models if any(thing.born in owners for thing in m.things)]
    homes = {m.home for m in models}
    # the weights of the first parameters may be those of a block, which a method does not gather
    cut = settings.fsdp_wrap or settings.fsdp_min_params
    blocked = cut or blocks(facts, [thing for m in models for thing in m.things])
    if LayerUse.UNCLEAR in uses or (LayerUse.LIKE in uses and blocked):
        yield _refused(facts, call, "looks at the model's weights, which are shards here")
        return
    if not uses & {LayerUse.LAYERS, LayerUse.LIKE}:
        return
    for home in homes:
        if home is None or home.each or home.optional:
            yield _refused(facts, call, "runs without gathering the weights of the model")
        else:
            alike = [thing for m in facts.models if m.home == home for thing in m.things]
            yield _registered(call, home, not all(thing.born in owners for thing in alike))


def _registered(call: Call, home: Home, some: bool) -> Finding:
    name = call.name.rpartition(".")[2]
    code = f'{_REGISTER}({home.target}, "{name}")'
    code = f'if hasattr({home.target}, "{name}"):\n    {code}' if some else code
    made = Edit(How.AFTER, home.statement, code, imports=(Import(_FROM, _REGISTER),))
    return Finding(
        "DDP901",
        call.callee,
        f"`{name}` computes beside the model's forward: the weights that it uses are shards",
        Severity.ERROR,
        (made,),
    )


def _refused(facts: Facts, call: Call, why: str) -> Finding:
    return Finding(
        "DDP901",
        call.callee,
        f"`{facts.text(call.callee)}` {why}",
        Severity.ERROR,
        advice="do it in the model's forward(), for example with a mode argument",
    )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per call that reaches parameters of a sharded model past its hooks."""
    for call in run.calls:
        for thing in call.receiver.things if call.receiver is not None else ():
            shard = shard_of(thing)
            if shard is None or shard.order > call.order or not _bypasses(run, call, thing):
                continue
            if not _inside(call, thing) and not _prepared(run, call, thing):
                yield Finding(
                    "DDP901",
                    call.site,
                    "this does not gather the sharded parameters: a crash, or after a regular"
                    " forward gradients that are not averaged",
                    Severity.ERROR,
                    advice="call the model itself, or register_fsdp_forward_method(model, name)",
                    because=((shard.site, "the model is sharded here"),),
                )
                break


def _bypasses(run: Run, call: RankCall, thing: RankThing) -> bool:
    if call.method == "__call__":
        # FSDP1: the module inside is called, not the wrapper
        return thing.sharded is None and not _wrapper_instead(run, call, thing)
    if thing.cls is None:
        return call.method == "forward" and thing.name.startswith("torch.nn.")
    name = attribute_called(call)
    reads = computing(thing.cls, name) if call.target is not None else {name}
    return any(
        holds_parameters(run, thing.cls, part) and not _sharded_itself(run, thing, part)
        for part in reads
    )


def _wrapper_instead(run: Run, call: RankCall, thing: RankThing) -> bool:
    """Whether what is called here is the wrapper or, where it was not wrapped, the module."""
    return any(
        other.node is call.node and other.stack == call.stack
        for other in run.methods("__call__")
        if thing.wrapper is not None and receives(other, thing.wrapper)
    )


def _sharded_itself(run: Run, thing: RankThing, part: str) -> bool:
    """Whether the layer may have hooks of its own: it, or what is found in it, was sharded."""
    for other in run.named("torch.distributed.fsdp.fully_shard"):
        module = other.arg(0, "module")
        if module is None or thing in module.things:
            continue
        for source in module.sources():
            owner = source.receiver if source.kind == "attribute" else None
            if owner is thing and source.name.endswith(f".{part}"):
                return True
            maker = source.call.receiver if source.call is not None else None
            if maker is not None and thing in maker.things:  # model.modules() and the like
                return True
    return False


def _inside(call: RankCall, thing: RankThing) -> bool:
    """Whether the model's own forward, or a method that is judged itself, led here."""
    around = {thing, thing.wrapper}
    return call.within(_SUMMON) or any(
        outer.receiver is not None and not around.isdisjoint(outer.receiver.things)
        for outer in call.stack
    )


def _prepared(run: Run, call: RankCall, thing: RankThing) -> bool:
    """Whether the method, or one around it, was registered as a forward, or all was gathered."""
    around = {one.function.name for one in call.way if one.function is not None}
    for other in run.calls:
        if other.order > call.order:
            return False
        if other.method == _REGISTER and other.args and thing in other.args[0].things:
            name = other.arg(1, "method_name")
            if name is None or name.constant in (None, call.method, *around):
                return True
        if other.method == "unshard" and other.receiver and thing in other.receiver.things:
            return True
    return False


RULE = Rule(
    "DDP901",
    "sharded-forward-bypass",
    "FSDP gathers parameters and averages gradients in hooks around the model's forward. Another"
    " method, .forward() or a layer called directly runs without them: 'got mixed torch.Tensor and"
    " DTensor', or, while a regular forward has left the weights whole (until the backward),"
    " gradients that differ between ranks (measured: 1 and 2) and no error.",
    "torch.distributed.fsdp.fully_shard, register_fsdp_forward_method; BUGS G02",
    check,
    lint=lint,
    bad=(
        changed(SHARDED, ("= loss_of(model(x), y)", "= loss_of(model.forward(x), y)  # DDP901")),
        changed(SHARDED, ("= loss_of(model(x), y)", "= model.score(x).mean()  # DDP901")),
    ),
    good=(
        SHARDED,
        changed(
            SHARDED,
            ("import fully_shard", "import fully_shard, register_fsdp_forward_method"),
            (
                "    fully_shard(model)\n",
                "    fully_shard(model)\n" + "    " + _REGISTER + '(model, "score")\n',
            ),
            ("= loss_of(model(x), y)", "= model.score(x).mean()"),
        ),
    ),
)
