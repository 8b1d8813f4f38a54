"""DDP909: ranks evaluate a sharded model on unequal numbers of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.evaluation import carriers
from ddpify.facts.events import Forward
from ddpify.facts.locality import is_shared_out, loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Loop
from ddpify.facts.values import OF_ONE_RANK, Kind
from ddpify.ranks.model import RankLoop, RankThing
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, is_local
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED
from ddpify.rules.frameworks.sharded import shard_of
from ddpify.rules.frameworks.weights import ends_early
from ddpify.rules.shared.model_names import name_at
from ddpify.settings import Settings
from ddpify.site import Site
from ddpify.strategies import of

_EVEN = "_Even"  # what even_batches makes


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per evaluation of shares, whose forwards are collectives."""
    if not of(settings).shards:
        return
    found: dict[Site, list[tuple[Loop, Forward]]] = {}
    for forward in facts.evaluation_forwards:
        loop = next((x for x in forward.call.where.loops() if loaders_in(x.over)), None)
        if loop is not None and any(is_shared_out(facts, one) for one in loaders_in(loop.over)):
            found.setdefault(loop.site, []).append((loop, forward))
    yield from _unequal(facts)
    training = {one.batch.site for one in facts.training}
    for site, pairs in found.items():
        if site not in training:
            fix = _even(facts, pairs)
            yield Finding(
                "DDP909",
                site,
                "ranks may have unequal numbers of batches here, and each forward waits for all",
                Severity.ERROR,
                fix,
                "" if fix else "give each rank as many batches, in a loop that has no early end",
            )


def _unequal(facts: Facts) -> Iterable[Finding]:
    """Forwards of a training step in a loop whose rounds a rank's own samples count."""
    batches = {one.batch for one in facts.training}
    seen: set[Site] = set()
    for forward in facts.training_forwards:
        loop = next((x for x in forward.call.where.loops() if x in batches), None)
        inner = (
            next((x for x in _inside(forward, loop) if not _is_fixed(x)), None) if loop else None
        )
        if inner is not None and inner.site not in seen:
            seen.add(inner.site)
            yield Finding(
                "DDP909",
                inner.site,
                "ranks may call the model unequally often here, and each forward waits for all",
                Severity.ERROR,
                advice="put the loop into the model's forward(), or use --strategy ddp",
            )


def _even(facts: Facts, pairs: list[tuple[Loop, Forward]]) -> tuple[Edit, ...]:
    """The loader of a loop made even, around the models that it calls in each of its rounds."""
    loop = pairs[0][0]
    heads = [site for site in carriers(facts.tree(loop.header), facts.values, loop)]
    names = list(dict.fromkeys(_names(facts, pairs)))
    if ends_early(facts, loop) or len(heads) != 1 or not all(names) or not names:
        return ()
    code = f"even_batches({{}}, {', '.join(names)})"
    return (edit(facts, How.REPLACE, heads[0], code),)


def _names(facts: Facts, pairs: list[tuple[Loop, Forward]]) -> Iterator[str]:
    """What models are called by at the loop; "" where one has no name, or a sample decides."""
    for loop, forward in pairs:
        guards = forward.call.where.guards[loop.held :]
        apart = any(is_local(facts, guard.test) for guard in guards)
        apart |= any(not _is_fixed(inner) for inner in _inside(forward, loop))
        yield "" if apart else name_at(facts, forward, loop) or ""


def _inside(forward: Forward, loop: Loop) -> Iterator[Loop]:
    """The loops of one round around a forward: how often it is called."""
    for one in forward.call.where.loops():
        if one is loop:
            return
        yield one


def _is_fixed(loop: Loop) -> bool:
    """``for k in range(4)``, of all ranks alike."""
    over = loop.over
    return (
        not loop.exits
        and not over.dep(Kind.BATCH, Kind.FORWARD, *OF_ONE_RANK)
        and bool(over.things)
    )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loop over every N-th sample in which a sharded model computes."""
    seen: set[Site] = set()
    for call in run.methods("__call__", "forward"):
        for thing in call.receiver.things if call.receiver is not None else ():
            shard = shard_of(thing)
            loop = next((loop for loop in reversed(call.loops) if iterated(loop)), None)
            if shard is None or loop is None or call.grad or loop.site in seen:
                continue
            if call.everywhere and _is_uneven(loop):
                seen.add(loop.site)
                yield Finding(
                    "DDP909",
                    loop.site,
                    "ranks have unequal numbers of batches, and each forward waits for all ranks:"
                    " a hang",
                    Severity.ERROR,
                    advice="let all ranks compute equally often: even_batches(loader, model) of"
                    " ddpify's helpers, or a DistributedSampler, which repeats samples",
                    because=((shard.site, "the model is sharded here"),),
                )


def _is_uneven(loop: RankLoop) -> bool:
    """Whether a sampler gives each rank every N-th sample, and nothing makes the rounds equal."""
    over = loop.over
    if over is None or any(t.cls is not None and t.cls.name == _EVEN for t in over.sources()):
        return False
    return any(map(_is_dealt, iterated(loop)))


def _is_dealt(loader: RankThing) -> bool:
    if loader.call is None:
        return False
    dealt = [loader.call.arg(3, "sampler")]
    data = loader.call.arg(0, "dataset")
    subset = data.made_by("torch.utils.data.Subset") if data is not None else None
    if subset is not None and subset.call is not None:
        dealt.append(subset.call.arg(1, "indices"))
    made = [order.made_by("builtins.range") for order in dealt if order is not None]
    return any(one and one.call and one.call.args[0].by_rank for one in made)


_END = "    dist.destroy_process_group()\n"
_SHARE = "range(dist.get_rank(), len(rows), dist.get_world_size())"
_EVALUATION = """    with torch.no_grad():
        for x, y in DataLoader(rows, batch_size=8, sampler={}):{}
            model(x)
"""
_NAMED = """    held = DataLoader(rows, batch_size=3, sampler={})
    model.eval()
    hits = torch.zeros(1)
    for x, y in held:{}
        with torch.no_grad():
            hits += (model(x).argmax(1) == y).sum()
    dist.all_reduce(hits)
"""
_SUBSET = (
    "import DataLoader, DistributedSampler,",
    "import DataLoader, DistributedSampler, Subset,",
)
_OF_SHARE = """    held = Subset(rows, {})
    with torch.no_grad():
        for x, y in DataLoader(held, batch_size=1):{}
            model(x)
"""
_MARK = "  # DDP909"

RULE = Rule(
    "DDP909",
    "uneven-sharded-evaluation",
    "The forward of a sharded model gathers weights from all ranks, also under no_grad: those of"
    " its blocks each time, its own in the first one behind a backward (measured). A rank with one"
    " batch less than another ends its loop, and the other waits in the forward until the process"
    " group gives up.",
    "torch.distributed.fsdp.fully_shard; CONTRACT: FSDP, equal step counts",
    check,
    lint=lint,
    bad=(
        changed(SHARDED, (_END, _EVALUATION.format(_SHARE, _MARK) + _END)),
        changed(SHARDED, (_END, _NAMED.format(_SHARE, _MARK) + _END)),
        changed(SHARDED, _SUBSET, (_END, _OF_SHARE.format(_SHARE, _MARK) + _END)),
    ),
    good=(
        changed(SHARDED, _SUBSET, (_END, _OF_SHARE.format("range(64)", "") + _END)),
        changed(SHARDED, (_END, _EVALUATION.format("DistributedSampler(rows)", "") + _END)),
        changed(SHARDED, (_END, _NAMED.format("None", "") + _END)),
    ),
)
