"""DDP707: a number is made from one of all ranks and one of this rank's samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.events import Store
from ddpify.ranks.mixing import Mark, Of, marks
from ddpify.ranks.model import RANK0, RankCall, RankGuard, RankValue
from ddpify.ranks.origins import DATA
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.metrics.metrics import shows
from ddpify.rules.metrics.of_a_group import of_a_group
from ddpify.rules.metrics.reduced_apart import reduced_apart
from ddpify.rules.metrics.reduced_twice import reduced_twice
from ddpify.rules.metrics.summed_again import summed_again
from ddpify.rules.metrics.summed_means import summed_means
from ddpify.rules.shared.outputs import CHECKPOINTS
from ddpify.site import Site

_ON_ONE = """
right, seen = torch.zeros(1), torch.zeros(1)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    F.cross_entropy(out, y).backward()
    optimizer.step()
    right += (out.argmax(1) == y).sum()
    seen += len(y)
dist.all_reduce(seen){more}
if dist.get_rank() == 0:
    print(epoch, (right / seen).item()){mark}
"""


_MESSAGES = {
    Of.HALF: "one operand was summed over the ranks, the other is of this rank's samples"
    " alone: the number is neither that of all ranks nor that of one",
    Of.FOLD: "what was summed over the ranks is divided by the count of this rank's samples:"
    " the number is N times too large",
    Of.TWICE: "this is a mean over the ranks already, and it is divided by their number once more:"
    " it is N times too small",
}
# These stay wrong when all ranks have them.
_AGREED = (Of.FOLD, Of.TWICE)
_ADVICE = {Of.TWICE: "leave the division out, or sum instead of averaging"}


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per such number that is shown, saved or decided by."""
    for value, where, what in _uses(run):
        for mark in _odd(value):
            if mark.site is not None:
                advice = _ADVICE.get(mark.of, "reduce both, or neither")
                kept = reduced_apart(run, mark)
                hops = ((mark.site, "divided here"), (where, what))
                yield _wrong(kept or mark.site, _MESSAGES[mark.of], advice, *hops[kept is None :])
    for site, call in of_a_group(run):
        advice = "divide by torch.distributed.get_world_size(group)"
        yield _wrong(site, _OF_A_GROUP, advice, (call.site, "summed over the group here"))
    for one in summed_again(run):
        hops = (one.loop.site, "in this loop"), (one.added, "added to here")
        yield _wrong(
            one.call.site, _AGAIN, "reduce a copy, or begin anew at zero in each round", *hops
        )
    for again, first in reduced_twice(run):
        advice = "put it together once: show what the first gives"
        yield _wrong(again.site, _TWICE, advice, (first, "summed over all ranks here"))
    for site, shows_it in summed_means(run):
        advice = "divide by torch.distributed.get_world_size(), or reduce sums and counts"
        yield _wrong(site, _SUMMED, advice, (shows_it.asked.site, "shown here"))


_AGAIN = (
    "what was summed over the ranks in the round before is summed again: N times what was there,"
    " and this round's"
)
_TWICE = (
    "what was summed over all ranks already is put together over them once more: what is shown is N"
    " times too large"
)
_OF_A_GROUP = (
    "this was summed over one group of ranks, and it is divided by the number of all ranks: it is"
    " as many times too small as there are such groups"
)
_SUMMED = (
    "each rank's mean is added up, and nothing divides the sum by the number of ranks: what is"
    " shown is N times too large"
)


def _wrong(site: Site, message: str, advice: str, *because: tuple[Site, str]) -> Finding:
    return Finding("DDP707", site, message, Severity.WARNING, (), advice, because)


def _odd(value: RankValue) -> Iterator[Mark]:
    """The quotients of unlike numbers that it was made from and that it still is."""
    for mark in value.sources():
        if isinstance(mark, Mark) and (mark.of in _AGREED or (mark.of is Of.HALF and value.local)):
            yield mark


def _uses(run: Run) -> Iterator[tuple[RankValue, Site, str]]:
    """The numbers shown, saved or asked that are not yet the same on all ranks."""
    done: set[RankGuard] = set()
    for call in run.calls:
        kept = call.name in CHECKPOINTS and not _in_memory(call)
        if call.module.ours and not kept:
            continue  # on its way to all ranks
        seen = shows(call) and call.target is None and call.ranks & RANK0
        if seen or kept:
            what = "shown here" if seen else "saved here"
            yield from ((v, call.asked.site, what) for v in call.given if _is_own(v))
        asked = [one for one in call.guards if one not in done and not one.module.ours]
        done.update(asked)
        yield from ((g.test, g.site, "decided by it") for g in asked if _is_own(g.test))
    yield from ((one.value, one.site, "kept here") for one in run.stores if _is_state(one))


def _is_state(store: Store) -> bool:
    """Whether an object keeps a sum over the ranks that was divided by what is the rank's own: a
    loss, the other way round, is often meant to be this rank's part of the mean."""
    kept = not store.element and not store.module.ours and Of.OVER in marks(store.value)
    return kept and _is_own(store.value)


def _in_memory(call: RankCall) -> bool:
    """``torch.save(value, io.BytesIO())``: a message, no file."""
    place = call.arg(1, "f")
    return place is not None and place.made_by("io.BytesIO") is not None


def _is_own(value: RankValue) -> bool:
    """Whether a rank's samples are in it, or once were and may have left their mark."""
    own = any(origin.kind == DATA for origin in spread(value))
    return own or not marks(value).keys().isdisjoint(_AGREED)


RULE = Rule(
    "DDP707",
    "half-global-number",
    "A quotient of this rank's sum and the count of all ranks is N times too small, one of all"
    " ranks' sum and this rank's count N times too large; an average that a meter keeps does not"
    " change when its sum and count are replaced by those of all ranks. ReduceOp.AVG divides, as"
    " hvd.allreduce and Fabric.all_reduce do where nothing else is said: divided by the number of"
    " ranks once more, a mean is N times too small.",
    "torch.distributed.all_reduce; BUGS M02",
    bad=(trained(loop=_ON_ONE.format(more="", mark="  # DDP707")),),
    good=(trained(loop=_ON_ONE.format(more="\ndist.all_reduce(right)", mark="")),),
    lint=lint,
    severity=Severity.WARNING,
    fixes=False,
)
