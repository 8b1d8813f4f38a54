"""Loaders that give every rank the same samples to train on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpify.facts.tree import last_name
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import FILES, RANDOM
from ddpify.ranks.passes import iterated, loaders_in
from ddpify.ranks.prepared import CALLS, is_model
from ddpify.ranks.run import Run
from ddpify.ranks.streams import seeded_by
from ddpify.ranks.words import TRAINER
from ddpify.rules.data.own_parts import parts, takes_turns
from ddpify.rules.shared.feeds import (
    GRADIENTS,
    argument,
    by_rank,
    dataset_of,
    dealt_by,
    held,
    identifiers,
    in_one_process,
    is_plain,
    is_share,
    is_split,
    leaves_samplers,
    literals,
    samplers_of,
    taken_over,
    trained,
)
from ddpify.site import Site

_WORDS = re.compile(r"[a-z]+")
_ITERABLE = "torch.utils.data.IterableDataset"
_WEIGHTED = "torch.utils.data.WeightedRandomSampler"
_COUNTS = ("devices", "num_nodes", "gpus")
# What changes parameters: a backward() alone may only ask for gradients, of a mask for instance.
_UPDATES = ("step", "add_", "sub_", "addcmul_", "copy_")
# Where these are used, some ranks are meant to get the same batches.
_SAME_BATCHES = (
    "torch.distributed.tensor.parallel.",
    "torch.distributed.pipelining.",
    "torch.distributed.tensor.",
    "megatron.",
    "lightning.pytorch.strategies.ModelParallelStrategy",
)


def undealt(run: Run) -> Iterator[tuple[RankThing, RankCall]]:
    """Loaders of a map-style data set that are trained on and deal nothing, with the wrapper."""
    if any(is_split(c) or c.name.startswith(_SAME_BATCHES) for c in run.calls):
        return
    yield from _left_by_trainers(run)
    made = (c for c in run.calls if _averages(c) and not _never_made(run, c))
    wrapper = next(made, None)
    if wrapper is None or (run.complete and not any(run.methods(*_UPDATES))):
        return
    spared = _evaluated_as_well(run) | _divided(run)
    for loader in trained(run) - spared:
        if _everyone_reads_all(run, loader) and not _is_iterable(dataset_of(loader)):
            yield loader, wrapper


def _left_by_trainers(run: Run) -> Iterator[tuple[RankThing, RankCall]]:
    """Loaders that a Trainer of several processes trains on and was told not to deal."""
    for fed in run.fed:
        if not fed.trains or not leaves_samplers(fed.call) or not _of_several(fed.call):
            continue
        for loader in loaders_in(fed.value):
            if _everyone_reads_all(run, loader) and not _is_iterable(dataset_of(loader)):
                yield loader, fed.call


def _of_several(fit: RankCall) -> bool:
    """Whether a Trainer surely has several devices: their number is written out."""
    made = fit.receiver.made_by(TRAINER) if fit.receiver is not None else None
    given = [made.call.kwargs.get(n) for n in _COUNTS] if made is not None and made.call else []
    counts = [value.constant for value in given if value is not None]
    return any(isinstance(one, int) and one > 1 for one in counts)


def _draws_alike(run: Run, sampler: RankValue) -> bool:
    """Whether a sampler draws the same on all ranks: with torch's stream, seeded alike."""
    drawn = bool(sampler.things) and all(t.name == _WEIGHTED for t in sampler.things)
    own = any(t.call is None or t.call.arg(3, "generator") for t in sampler.things)
    seeds = [c for c in run.calls if "torch" in seeded_by(c) and c.target is None]
    alike = bool(seeds) and all(c.everywhere and not c.args[0].local for c in seeds if c.args)
    return drawn and not own and alike and not by_rank(sampler)


def _averages(call: RankCall) -> bool:
    """Whether gradients are averaged from a call on: a wrapper's, or that of a framework."""
    of_framework = call.name in CALLS and not call.star
    return call.name in GRADIENTS or (
        of_framework and any(is_model(thing) for value in call.given for thing in value.things)
    )


def _divided(run: Run) -> set[RankThing]:
    """Loaders of whose batches each rank takes its share."""
    shares = (value for call in run.calls if is_share(call) for value in call.args)
    divided = {loader for value in (*shares, *parts(run)) for loader in loaders_in(value)}
    taking = {one.loader for one in run.passes if takes_turns(run, one)}
    return divided | taking | {loader for loader in trained(run) if loader.deals}


def _never_made(run: Run, wrapper: RankCall) -> bool:
    """Whether the option that asks for a wrapper is off here: the program joins no group."""
    joins = run.session is not None or bool(run.frameworks) or not (run.script and run.complete)
    return not joins and bool(literals(wrapper.guards))


def _evaluated_as_well(run: Run) -> set[RankThing]:
    """``for batch in loaders[phase]``: of several loaders, those that do not shuffle."""
    spared: set[RankThing] = set()
    for one in run.passes:
        several = iterated(one.loop)
        shuffling = [t for t in several if _shuffles(t)]
        if len(several) > 1:
            spared |= set(several) - set(shuffling or several[:1])
        if any(dealt_by(loader) for loader in several):
            spared |= set(several)
    return spared


def _shuffles(loader: RankThing) -> bool:
    shuffle = argument(loader, 2, "shuffle")
    return shuffle is not None and shuffle.constant is True


def whole_streams(run: Run) -> Iterator[tuple[RankThing, RankThing]]:
    """Loaders trained on whose IterableDataset says nothing of ranks, with that data set."""
    given = {one for fed in run.fed if fed.trains for one in loaders_in(fed.value)}
    for loader in (trained(run) | given) - _divided(run):
        dataset = dataset_of(loader)
        streams = [t for t in dataset.things if _is_known(t)] if dataset is not None else []
        if streams and _everyone_reads_all(run, loader):
            yield loader, streams[0]


def dealt_by_worker(method: FunctionDefinition) -> Site | None:
    """Where a stream takes the samples of a worker, of as many as one process has: every n-th,
    or, where that is not seen, where it asks how many there are."""
    nodes = list(ast.walk(method.node))
    asked = [n for n in nodes if _is_number(n)]
    sets = (n for n in nodes if isinstance(n, ast.Assign) and any(map(_is_number, ast.walk(n))))
    named = {
        n.id for one in sets for t in one.targets for n in ast.walk(t) if isinstance(n, ast.Name)
    }
    taken = [n for n in nodes if (n_th := _n_th(n)) is not None and _is_one_of(n_th, named)]
    return min((method.module.site(node) for node in taken or asked), default=None)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "num_workers"


def _n_th(node: ast.AST) -> ast.expr | None:
    """``n`` of ``rows[i::n]``, ``k % n`` and ``islice(rows, i, None, n)``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return node.slice.step
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return node.right
    steps = isinstance(node, ast.Call) and last_name(node.func) in ("islice", "range")
    return node.args[-1] if steps and isinstance(node, ast.Call) and node.args else None


def _is_one_of(node: ast.expr, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _everyone_reads_all(run: Run, loader: RankThing) -> bool:
    call, dataset = loader.call, dataset_of(loader)
    if call is None or dataset is None or call.star or not call.everywhere:
        return False
    if not all(is_plain(one) or _draws_alike(run, one) for one in samplers_of(loader)):
        return False
    if by_rank(dataset) or dataset.has(RANDOM) or dataset.has(FILES) or _knows_ranks(dataset):
        return False
    return not taken_over(run, loader) and not in_one_process(run, call)


def _is_iterable(dataset: RankValue | None) -> bool:
    return dataset is not None and any(_is_stream(thing) for thing in dataset.things)


def _is_stream(thing: RankThing) -> bool:
    return thing.cls is not None and thing.cls.inherits(_ITERABLE)


def _is_known(thing: RankThing) -> bool:
    """Whether a stream makes its samples itself: a function that it is given may draw them."""
    method = thing.cls.method("__iter__") if thing.cls is not None else None
    if thing.cls is None or method is None or not _is_stream(thing):
        return False
    called = (one.func for one in ast.walk(method.node) if isinstance(one, ast.Call))
    own = (
        one.attr
        for one in called
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self"
    )
    return all(thing.cls.method(name) is not None for name in own)


_DEALING = (
    "webdataset.",
    "datasets.",
    "torchdata.",
    "streaming.",
    "litdata.",
)  # may deal themselves
_SAYS_RANK = frozenset(
    "rank ranks world shard shards sharded replica replicas node nodes dist distributed process"
    " processes".split()
)

_OF_WORKERS = frozenset({"shard", "shards", "sharded"})  # what a stream deals to its workers


def _knows_ranks(dataset: RankValue) -> bool:
    """Whether a loader's classes speak of ranks: they may deal by themselves."""
    for thing in held(dataset):
        if thing.kind == "parameter":
            return True
        if thing.cls is None and thing.name.startswith(_DEALING):
            return True
        if thing.cls is not None and thing.kind == "instance":
            said = {name for info in thing.cls.mro() for name in identifiers(info.node)}
            wanted = _SAYS_RANK - _OF_WORKERS if "num_workers" in said else _SAYS_RANK
            if not wanted.isdisjoint(word for name in said for word in _WORDS.findall(name)):
                return True
    return False
