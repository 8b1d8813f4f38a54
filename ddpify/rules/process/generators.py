"""Generators with one seed on all ranks, from which noise is drawn that trains.

torch.randn(x.shape, generator=gen)     # each rank has its own batch, and all have this noise
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.mixing import Of, marks
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.origins import IDENTITY, PART, PIECE, STRIDE
from ddpify.ranks.run import Run
from ddpify.ranks.streams import SEED, apart
from ddpify.ranks.words import DIST, GENERATORS
from ddpify.rules.process.draws import same_everywhere
from ddpify.rules.shared.averaged_by_hand import is_gradient
from ddpify.rules.shared.feeds import dealt_by, trained
from ddpify.rules.shared.wrapped import backwards, parameters_of, wraps

# Not choices, orders and single shares, which ranks may be meant to have in common.
_NOISE: Final = frozenset(
    "randn normal standard_normal normal_ bernoulli gauss normalvariate".split()
)
_OF_A_SHAPE: Final = frozenset("rand uniform uniform_ random".split())
_FREE: Final = frozenset(f"torch.{one}" for one in "randn randn_like normal rand rand_like".split())
_ADVANCES: Final = frozenset(
    """randn randn_like normal normal_ rand rand_like uniform_ randint randint_like randperm
    bernoulli bernoulli_ multinomial sample rsample dropout""".split()
)
_ORDERS: Final = ("topk", "argsort", "sort", "kthvalue")
_RESTORES: Final = frozenset("set_rng_state set_rng_state_all fork_rng".split())
_MOVES: Final = ("set_state", "advance", "jumped")
_SLICES: Final = (PART, PIECE, STRIDE)


def same_noise(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(what chooses the seed, what draws): noise that is the same on all ranks."""
    if not (wraps(run) or any(map(_averages, run.named(f"{DIST}all_reduce")))):
        return
    yield from _of_library(run)
    for draw in run.calls:
        found = alike(run, draw) if is_noise(draw) and draw.everywhere else None
        if found is not None and any(_trains(run, draw, one) for one in backwards(run)):
            yield chosen(found), draw


def _of_library(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """Noise from torch's own stream, for samples that a sampler deals, after one seed for all.

    Not where a rank may be elsewhere in the stream: it draws more, or sets its state.
    """
    seeding = same_everywhere(run)
    moved = any(call.method in _RESTORES for call in run.calls)
    if seeding is None or moved or run.helpers or not any(map(dealt_by, trained(run))):
        return
    later = [one for one in run.calls if one.order > seeding.order]
    if any(one.method in _ADVANCES and not one.everywhere for one in later):
        return
    for draw in (one for one in later if one.name in _FREE and "generator" not in one.kwargs):
        if _is_order(run, draw):
            continue
        if any(_trains(run, draw, one) for one in backwards(run)):
            yield chosen(seeding), draw


def _is_order(run: Run, draw: RankCall) -> bool:
    """Whether the draw only says which to take, and not of the samples: ``torch.rand(classes)`` of
    which `topk` picks some. Masks of the samples are as many as these."""
    made = set(draw.result.things) if draw.result is not None else set()
    sorts = run.methods(*_ORDERS)
    sorted_ = any(not made.isdisjoint(v.sources()) for one in sorts for v in one.inputs)
    sorted_ |= any(
        not made.isdisjoint(v.sources())
        for one in run.named(*(f"torch.{name}" for name in _ORDERS))
        for v in one.given
    )
    sizes = [one for value in draw.given for one in (value, *(value.items or ()))]
    of_samples = any(Of.COUNT in marks(one) for one in sizes)
    return sorted_ and not of_samples and not draw.name.endswith("_like")


def _averages(call: RankCall) -> bool:
    return any(map(is_gradient, call.given))


def is_noise(draw: RankCall) -> bool:
    if draw.method not in _NOISE | _OF_A_SHAPE or any(map(parameters_of, draw.inputs)):
        return False  # of the weights all ranks have the same
    first = draw.arg(0, "size")
    first = first.items[0] if first is not None and first.items else first
    if first is not None and first.constant == 1:
        return False  # the same for all samples of a batch
    sized = any(a.constant not in (None, 1) or not a.known for a in draw.given)
    return draw.method in _NOISE or sized


def alike(run: Run, draw: RankCall) -> RankCall | None:
    """The call that has given the draw's generator its seed, where that is the same on all."""
    given = draw.kwargs.get("generator") or draw.receiver
    made = [t for t in given.things if SEED in t.state] if given is not None else []
    if len(made) != 1 or made[0].name not in GENERATORS or made[0].call is None:
        return None
    if _is_moved(run, made[0]):
        return None
    state = made[0].state[SEED]
    known = not apart(state) and not state.origins
    return _seeding(run, made[0]) if known else None


def _is_moved(run: Run, generator: RankThing) -> bool:
    """Whether a rank may be elsewhere in the stream: ``set_state``, as many draws as its number."""
    for call in run.calls:
        if any(generator in value.things for value in call.inputs):
            by_rank = any(loop.over is not None and loop.over.by_rank for loop in call.loops)
            if by_rank or not call.everywhere or call.method in _MOVES:
                return True
    return False


def _seeding(run: Run, generator: RankThing) -> RankCall:
    """What has given a generator its seed last."""
    seeds = run.methods("seed", "manual_seed")
    found = [one for one in seeds if one.receiver and generator in one.receiver.things]
    assert generator.call is not None
    return found[-1] if found else generator.call


def chosen(seeding: RankCall) -> RankCall:
    """The call, of those that led there, in which the seed is more than what was handed on."""
    node = seeding.node_of(0, "seed")
    for caller in reversed(seeding.stack):
        names = _parameters(caller)
        if not isinstance(node, ast.Name) or node.id not in names:
            break
        given = caller.node_of(names.index(node.id), node.id)
        if given is None:
            break
        seeding, node = caller, given
    return seeding


def _parameters(caller: RankCall) -> list[str]:
    """What a function of the project can be given, or the class that a call makes one of."""
    made = caller.result.things[0].cls if caller.result and caller.result.things else None
    target = caller.target or (made.method("__init__") if made is not None else None)
    names = list(target.parameters) if target is not None else []
    return names[1:] if names[:1] == ["self"] else names


def _trains(run: Run, draw: RankCall, backward: RankCall) -> bool:
    """Whether a loss has the noise in it, and nothing that is chosen by the rank."""
    loss, drawn = backward.receiver, draw.result
    if loss is None or drawn is None or not set(draw.loops) & set(backward.loops):
        return False
    if any(o.kind in IDENTITY or o.what in _SLICES for o in loss.all_origins):
        return False
    return not set(drawn.things).isdisjoint(loss.sources())
