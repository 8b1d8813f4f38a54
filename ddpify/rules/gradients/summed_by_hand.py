"""Gradients of means that a program adds up over the ranks itself, and divides by nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.ranks.collective import collective
from ddpify.ranks.mixing import Of, marks
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import ITEM, Symbol, of_one_rank
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST
from ddpify.rules.shared.averaged_by_hand import (
    Averaging,
    averagings,
    gradients_scaled,
    gradients_set,
    is_in_place,
)
from ddpify.rules.shared.by_ranks import power
from ddpify.rules.shared.losses import made_by, reduction
from ddpify.rules.shared.optimizers import GROWING, optimizers
from ddpify.rules.shared.wrapped import backwards, wraps


@dataclass(frozen=True, eq=False)
class Summed:
    """The collective, and the backward of a mean whose gradients it adds up."""

    call: RankCall
    backward: RankCall


def summed_by_hand(run: Run) -> Iterator[Summed]:
    """The first collective over the gradients of each model that nothing divides."""
    seen: set[RankThing] = set()
    for one in averagings(run):
        if seen.issuperset(one.models) or not _adds(one) or _are_wrapped(run, one):
            continue
        seen |= one.models
        found = _mean(run, one)
        if found is not None and not _is_scaled(run, one) and _steps_by_size(run, one):
            yield Summed(one.call, found)


def _adds(one: Averaging) -> bool:
    shared = collective(one.call)
    op = shared.given("op") if shared is not None else None
    return op is None or op.names() == {f"{DIST}ReduceOp.SUM"}


def _are_wrapped(run: Run, one: Averaging) -> bool:
    return any(wrap.covers(thing) for wrap in wraps(run) for thing in one.models)


def _mean(run: Run, one: Averaging) -> RankCall | None:
    """The only backward of the models, if it is that of a mean over what is this rank's; one
    outside the loop in which the gradients are added up is of something else: a comparison."""
    found = [b for b in backwards(run) if b.receiver and _reaches(b.receiver, one)]
    near = max((_shared_loops(b, one.call) for b in found), default=0)
    found = [b for b in found if _shared_loops(b, one.call) == near]
    loss = found[0].receiver if len({call.site for call in found}) == 1 else None
    made = made_by(loss) if loss is not None else None
    if loss is None or made is None or power(loss) != 0:
        return None
    means = reduction(made) == "mean" or (made.method == "mean" and made.receiver is not None)
    return found[0] if means and of_one_rank(loss.all_origins) else None


def _shared_loops(backward: RankCall, call: RankCall) -> int:
    return len(set(backward.loops) & set(call.loops))


def _reaches(loss: RankValue, one: Averaging) -> bool:
    return not one.models.isdisjoint(loss.sources())


def _is_scaled(run: Run, one: Averaging) -> bool:
    """Whether anything may set or scale the gradients, but for putting the sum back."""
    covers = one.models.__contains__
    stored = list(gradients_set(run, covers))
    if not stored and not is_in_place(one.call):
        return True  # a copy that is put back nowhere: DDP821 speaks of that
    return not all(map(_is_plain_sum, stored)) or gradients_scaled(run, covers)


def _is_plain_sum(value: RankValue) -> bool:
    """Whether it is a part of what was added up over the ranks: ``flat[:n].view_as(p)``."""
    atom, known = value.atoms[0], marks(value)
    calls = (thing.call for thing in value.things if thing.call is not None)
    if not all(call.method.startswith(("view", "reshape", "clone", "to")) for call in calls):
        return False
    computed = isinstance(atom, Symbol) and atom.parts and atom.parts[0] != ITEM
    return Of.ALL in known and Of.MEAN not in known and not computed


def _steps_by_size(run: Run, one: Averaging) -> bool:
    """Whether a known optimizer of the models steps in proportion to the gradient, at a rate that
    the program does not compute."""
    made = optimizers(run, one.models.__contains__)
    rates = [rate for call in made if (rate := call.arg(1, "lr")) is not None]
    return (
        bool(made)
        and all(call.method in GROWING for call in made)
        and not any(isinstance(r.atoms[0], Symbol) and r.atoms[0].parts for r in rates)
        and all(power(rate) >= 0 for rate in rates)
    )
