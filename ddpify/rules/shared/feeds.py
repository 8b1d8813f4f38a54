"""Loaders in a run: which are trained on, who deals their samples, who takes them over."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import chain

from ddpify.names import OF_MODELS, OWN
from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankGuard, RankThing, RankValue
from ddpify.ranks.origins import IDENTITY
from ddpify.ranks.passes import iterated, loaders_in
from ddpify.ranks.prepared import CALLS, MAKES
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread, text

BATCH_SAMPLER = "torch.utils.data.BatchSampler"
# Samplers of torch that know nothing of ranks.
PLAIN_SAMPLERS = frozenset({"torch.utils.data.RandomSampler", "torch.utils.data.SequentialSampler"})
_TAKEN_OVER = frozenset({"prepare", "prepare_data_loader", "setup_dataloaders", "deepspeed_io"})
# Objects whose methods are given batches and losses, too: only what prepares takes a loader over.
_OWNERS = tuple(f"{name}." for name in MAKES)
GRADIENTS = frozenset({*words.WRAPPERS, words.FULLY_SHARD})


def is_sampler(thing: RankThing) -> bool:
    """A DistributedSampler, or an object of a project class that is one."""
    if thing.call is None:
        return False
    own = thing.cls is not None and thing.cls.inherits(words.SAMPLER)
    return own or (thing.kind == "result" and thing.name == words.SAMPLER)


def is_share(call: RankCall) -> bool:
    """A call of our helper that gives each rank its part of a batch that all of them made."""
    return call.target is not None and call.target.module.ours and call.target.name in OWN


def is_split(call: RankCall) -> bool:
    """A call of our helper after which a model computes each rank's rows of whole batches."""
    return call.target is not None and call.target.module.ours and call.target.name == OF_MODELS


def trained(run: Run) -> set[RankThing]:
    """The loaders that losses are computed from."""
    return run.once(_trained)


def _trained(run: Run) -> set[RankThing]:
    found = {one.loader for one in run.passes}
    for call in run.backwards:
        for value in (call.receiver, *call.args):
            found.update(run.once(_iterated_by_hand).intersection(loaders_in(value)))
    return found


def _iterated_by_hand(run: Run) -> set[RankThing]:
    """By ``iter(loader)``, or in a generator of the project's own: ``for x in loader: yield x``."""
    found = {t for c in run.named("builtins.iter") if c.args for t in loaders_in(c.args[0])}
    for loop in run.loops:
        loaders = iterated(loop)
        if loaders and any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(loop.node)):
            found.update(loaders)
    return found


def argument(loader: RankThing, position: int, keyword: str) -> RankValue | None:
    """What a loader was made with; None also for the constant None."""
    call = loader.call
    value = call.arg(position, keyword) if call is not None else None
    return None if value is not None and value.known and value.atoms == (None, None) else value


def dataset_of(loader: RankThing) -> RankValue | None:
    """The data set of a loader."""
    return argument(loader, 0, "dataset")


def samplers_of(loader: RankThing) -> tuple[RankValue, ...]:
    """The samplers that a loader takes its order from, if given."""
    given = (argument(loader, 3, "sampler"), argument(loader, 4, "batch_sampler"))
    return tuple(value for value in given if value is not None)


def dealt_by(loader: RankThing) -> tuple[RankThing, ...]:
    """The DistributedSamplers behind a loader."""
    return tuple(
        dict.fromkeys(t for v in samplers_of(loader) for t in v.sources() if is_sampler(t))
    )


def is_plain(sampler: RankValue) -> bool:
    """Whether a sampler surely gives every rank all samples: torch's own ones, and None."""
    if by_rank(sampler) or not sampler.things:
        return False
    for thing in sampler.things:
        if thing.call is None or thing.kind != "result":
            return False
        if thing.name == BATCH_SAMPLER:
            inner = thing.call.arg(0, "sampler")
            if inner is None or not is_plain(inner):
                return False
        elif thing.name not in PLAIN_SAMPLERS or thing.call.arg(1, "replacement") is not None:
            return False
    return True


def by_rank(value: RankValue) -> bool:
    """Whether the rank is in it, or in what its objects hold."""
    if any(origin.kind in IDENTITY for origin in spread(value)):
        return True
    return any(
        origin.kind in IDENTITY
        for thing in held(value)
        for inner in _parts(thing)
        for origin in spread(inner)
    )


def _parts(thing: RankThing) -> Iterator[RankValue]:
    """What an object of the project holds, and what a library's was made from."""
    if thing.cls is not None:
        yield from thing.attrs.values()
    if thing.call is not None and thing.kind == "result":
        yield from thing.call.args


def held(value: RankValue, depth: int = 3) -> set[RankThing]:
    """The things a value is made from, and those that its objects hold."""
    found: set[RankThing] = set()
    todo = set(value.sources())
    for _ in range(depth):
        todo -= found
        found |= todo
        inner = [v for t in todo if t.cls is not None for v in t.attrs.values()]
        todo = set[RankThing]().union(*(v.things for v in inner), *(v.made_from for v in inner))
    return found


def taken_over(run: Run, loader: RankThing) -> bool:
    """Whether a framework is handed the loader: it deals the samples, and says the epoch."""
    given = (value for call in run.once(_taking) for value in call.given)
    return any(_hands_over(value, loader, 1) for value in given)


def _hands_over(value: RankValue, loader: RankThing, depth: int) -> bool:
    """Whether a value is the loader, or an object or a list that was given it: no batch of it."""
    if loader in value.things or not depth:
        return loader in value.things
    held = (*(value.items or ()), *(one for _, one in value.keys or ()))
    inner = chain(held, *map(_parts, value.things))
    return any(_hands_over(one, loader, depth - 1) for one in inner)


def _taking(run: Run) -> list[RankCall]:
    """The calls that deal the samples of loaders that they are given."""
    return [call for call in run.calls if _takes_over(call) and not leaves_samplers(call)]


def _takes_over(call: RankCall) -> bool:
    foreign = call.target is None and call.name.partition(".")[0] in words.FRAMEWORKS
    foreign = foreign and not (call.name.startswith(_OWNERS) and call.name not in CALLS)
    return foreign or call.method in _TAKEN_OVER


def is_whole(run: Run, loader: RankThing) -> bool:
    """Whether all ranks go over all of it."""
    data = dataset_of(loader)
    plain = all(map(is_plain, samplers_of(loader))) and data is not None and not by_rank(data)
    return plain and not taken_over(run, loader)


def leaves_samplers(call: RankCall) -> bool:
    """Whether a framework is told to leave loaders as they are: ``use_distributed_sampler=False``.

    Fabric's setup, or the Trainer whose method it is.
    """
    trainers = call.receiver.things if call.receiver is not None else ()
    made = (t.call for t in trainers if t.name == words.TRAINER and t.call is not None)
    given = (one.kwargs.get("use_distributed_sampler") for one in (call, *made))
    return any(value is not None and value.constant is False for value in given)


def literals(guards: Iterable[RankGuard]) -> set[tuple[str, bool]]:
    """Conditions that must hold, by key: ``not x`` that does not hold is ``x`` that does."""
    found = set()
    for guard in guards:
        if guard.test.known:
            continue
        key, holds = text(guard.test.atoms[0]), guard.holds
        while key.startswith("not "):
            key, holds = key[4:], not holds
        found.add((key, holds))
    return found


def in_one_process(run: Run, call: RankCall) -> bool:
    """Whether the program makes this call only where it does not distribute."""
    against = {(key, not holds) for key, holds in literals(call.guards)}
    for names in (GRADIENTS, {words.SAMPLER}):
        marks = [c for c in run.named(*names) if c.node is not call.node]  # nor it in another arm
        if marks and all(not literals(c.guards).isdisjoint(against) for c in marks):
            return True
    return False


def identifiers(node: ast.AST) -> set[str]:
    """Every name, attribute and text in it, in lower case."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            found.add(one.id.lower())
        elif isinstance(one, ast.Attribute):
            found.add(one.attr.lower())
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            found.add(one.value.lower())
        elif isinstance(one, (ast.arg, ast.keyword)) and one.arg is not None:
            found.add(one.arg.lower())
    return found


def dealt_sets(run: Run) -> set[RankThing]:
    """Data sets whose indices a DistributedSampler or a framework deals, with what makes them."""
    found: set[RankThing] = set()
    prepared = (value for call in run.named(*CALLS) for value in call.given)
    dealt = {loader for value in prepared for loader in value.things if loader.deals}
    given = {one for each in run.fed for one in loaders_in(each.value)} if run.assumed else set()
    for loader in dealt | given:
        dataset = dataset_of(loader)
        found |= held(dataset) if dataset is not None and not by_rank(dataset) else set()
    for call in run.named(words.SAMPLER):
        dataset = call.arg(0, "dataset")
        if dataset is not None and not by_rank(dataset) and not in_one_process(run, call):
            found |= held(dataset)
    return found
