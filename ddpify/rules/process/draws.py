"""Seeds that make every rank draw the same random augmentation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import IDENTITY
from ddpify.ranks.run import Run
from ddpify.ranks.streams import seeded_by
from ddpify.ranks.values import spread
from ddpify.ranks.words import SEEDERS, TORCH
from ddpify.rules.process.in_step import draws_in, parted_by_workers, stays_in_step
from ddpify.rules.shared.feeds import dataset_of, dealt_by, held, taken_over, trained
from ddpify.rules.shared.seeds import process
from ddpify.rules.shared.syntax import dotted
from ddpify.site import Site

# Where the seed is set, what it does, whether streams stay in step, and what draws.
Drawn = tuple[Site, str, bool, tuple[tuple[Site, str], ...]]
_TRANSFORMS = ("torchvision.transforms.", "torchvision.transforms.v2.")
_DRAWS = ("Random", "AutoAugment", "RandAugment", "TrivialAugment", "AugMix", "ColorJitter")


def same_draws(run: Run) -> Iterator[Drawn]:
    """Where a seed is set that is the same on all ranks, and what then draws the same."""
    dealt = (t for t in trained(run) if dealt_by(t) or taken_over(run, t))
    loaders = [one for one in dealt if not parted_by_workers(one)]
    for loader in loaders:
        random = _augments(loader)
        if random is not None:
            yield from _workers(loader, random)
    seeding = same_everywhere(run)
    if seeding is not None and not all(_is_seeded(run, seeding, loader) for loader in loaders):
        return
    found = [(random, one) for one in loaders if (random := _augments(one)) is not None]
    in_step = [one for one in found if _in_step(*one)]
    for random, _ in (in_step or found)[:1] if seeding is not None else ():
        if seeding is not None and random.site is not None:
            yield (
                seeding.site,
                f"one seed for all ranks: they {_ALIKE if in_step else _BEGUN}",
                bool(in_step),
                ((random.site, "draws at random"),),
            )


_ALIKE = "draw the same augmentation at the same position"
_BEGUN = "begin with the same augmentation, and go apart as their samples take more or fewer draws"


def _in_step(random: RankThing, loader: RankThing) -> bool:
    dataset = dataset_of(loader)
    return stays_in_step(random, held(dataset) if dataset is not None else ())


def _is_seeded(run: Run, seeding: RankCall, loader: RankThing) -> bool:
    return loader.call is None or process(run, seeding) is process(run, loader.call)


def _augments(loader: RankThing) -> RankThing | None:
    """What draws at random in the loader's data set: a transform, or a method of its class."""
    dataset = dataset_of(loader)
    holds = held(dataset) if dataset is not None else set()
    for thing in holds:
        name = thing.name.rpartition(".")[2]
        transform = thing.kind == "result" and thing.name.startswith(_TRANSFORMS)
        if transform and name.startswith(_DRAWS):
            return thing
        if _draws(thing) and all(_draws(o) for o in holds if o.cls and o.site == thing.site):
            return thing  # where a key chooses one of several classes, each of them draws
    return None


def _draws(thing: RankThing) -> bool:
    method = thing.cls.method("__getitem__") if thing.cls is not None else None
    return method is not None and any(draws_in(method))


def same_everywhere(run: Run) -> RankCall | None:
    """The last seed of torch, if it is set in any case and is no rank's own."""
    found = [c for c in run.calls if c.target is None and TORCH in seeded_by(c)]
    if not found or found[-1].name not in SEEDERS:
        return None  # what an unknown function does beside is its own
    last = found[-1]
    own = any(o.kind in IDENTITY for c in found for v in c.args for o in spread(v))
    sure = not own and last.everywhere and all(guard.test.known for guard in last.guards)
    return last if sure and last.args and not last.args[0].local else None


# -- workers of a loader -------------------------------------------------------------------------


def _workers(loader: RankThing, random: RankThing) -> Iterator[Drawn]:
    """``worker_init_fn`` that seeds by the worker's number alone."""
    given = loader.call.kwargs.get("worker_init_fn") if loader.call is not None else None
    for thing in given.things if given is not None else ():
        info: FunctionDefinition = thing.info
        place = 0 if thing.receiver is None else 1
        if thing.kind == "function" and len(info.parameters) > place:
            for node in _seeded_by_number(info, info.parameters[place]):
                yield (
                    info.module.site(node),
                    "workers are seeded by their number alone: the same draws on all ranks, and"
                    " in every epoch",
                    _in_step(random, loader),
                    ((random.site, "draws at random"),) if random.site is not None else (),
                )


def _seeded_by_number(info: FunctionDefinition, number: str) -> Iterator[ast.Call]:
    for node in ast.walk(info.node):
        if isinstance(node, ast.Call) and dotted(info.module, node.func) in SEEDERS and node.args:
            names = {n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)}
            calls = any(isinstance(n, (ast.Call, ast.Attribute)) for n in ast.walk(node.args[0]))
            if names == {number} and not calls:
                yield node
