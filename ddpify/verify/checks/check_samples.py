"""In every optimizer step the ranks share out exactly the reference's samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations, pairwise

from ddpify.verify.checks.base import numbered, result, skipped, some
from ddpify.verify.checks.comparison import Comparison, together
from ddpify.verify.checks.passes import LoaderPass, Samples, passes
from ddpify.verify.recording import RunRecord, ShuffleRecord
from ddpify.verify.verdict import Check

_TITLE = "samples shared out"


@dataclass(frozen=True)
class SampleFaults:
    """The faults of the samples; ``step`` is the first step, ``factor`` of the batch size.

    ``repeated``: ranks train on the same samples; ``whole``: each rank takes all of an epoch;
    ``same_order``: a later epoch repeats the order of the first; ``shuffled``: by the ranks alone;
    ``unseen``: samples the reference never trains on.
    """

    step: int
    repeated: bool = False
    whole: bool = False
    same_order: bool = False
    shuffled: bool = False
    unseen: tuple[str, ...] = ()
    factor: float = 1.0


def samples(c: Comparison) -> Check:
    if not any(each.training for each in c.passes):
        return skipped("samples", _TITLE, "no training batch came from a DataLoader")
    if not c.windows:
        return skipped("samples", _TITLE, "no optimizer step was taken by every rank")
    compared = numbered(len(c.windows), "step")
    batch = max(wanted.total() for wanted, _ in c.windows)
    found = patterns(c)
    if found is None:
        each = numbered(c.nproc, "rank")
        return result("samples", _TITLE, False, f"{compared}, global batch {batch}, {each}")
    wrong = sum(together(shares) != wanted for wanted, shares in c.windows)
    measured = f"wrong in {wrong} of {compared}, first in step {found.step}"
    return result("samples", _TITLE, True, measured, (*_described(found), *_first(c, found.step)))


def patterns(c: Comparison) -> SampleFaults | None:
    """None if nothing is wrong, or nothing can be said."""
    step = c.wrong_window
    if step is None or not any(each.training for each in c.passes):
        return None
    wanted, shares = c.windows[step]
    seen: Samples = together(wanted for wanted, _ in c.windows)
    taken: Samples = together(together(shares) for _, shares in c.windows)
    stopped = c.one.status == "stopped"
    unseen = (
        () if stopped else tuple(sorted(str(sample) for _, sample in taken.keys() - seen.keys()))
    )
    size = together(shares).total()
    return SampleFaults(
        step,
        repeated=bool(_repeated(wanted, shares)),
        whole=_whole(c),
        same_order=_same_order(c),
        shuffled=_trained(c.one) == {"SequentialSampler"} and _shuffles(c.ranks[0]),
        unseen=unseen,
        factor=size / wanted.total() if wanted else 1.0,
    )


def _described(found: SampleFaults) -> list[str]:
    lines = []
    if found.whole:
        lines.append("each rank goes through the whole data set")
    if found.repeated:
        lines.append("several ranks train on the same samples")
    if found.same_order:
        lines.append("the second epoch has the order of the first")
    if found.shuffled:
        lines.append("one process takes the samples as they lie, the ranks' sampler shuffles them")
    if found.factor != 1:
        lines.append(f"the ranks together take {found.factor:.3g} times the batch of one process")
    if found.unseen:
        lines.append(f"never trained on by the original: {some(found.unseen)}")
    return lines


def _first(c: Comparison, step: int) -> list[str]:
    wanted, shares = c.windows[step]
    union = together(shares)
    lines = [f"step {step}: {wanted.total()} samples in one process, {_sizes(shares)} on the ranks"]
    for kind, part in (("missing", wanted - union), ("extra", union - wanted)):
        if part:
            lines.append(f"step {step}: {kind} {_some(part)}")
    for (rank, share), (other, twin) in combinations(enumerate(shares), 2):
        if both := share & twin & _repeated(wanted, shares):
            lines.append(f"step {step}: ranks {rank} and {other} both train on {_some(both)}")
    return lines


def _sizes(shares: tuple[Samples, ...]) -> str:
    return " + ".join(str(share.total()) for share in shares)


def _repeated(wanted: Samples, shares: tuple[Samples, ...]) -> Samples:
    """Samples that several ranks take, oftener than the reference's order has them."""
    ranks: Counter[object] = Counter(sample for share in shares for sample in share)
    union = together(shares)
    return Counter({s: n for s, n in union.items() if ranks[s] > 1 and n > max(wanted[s], 1)})


def _whole(c: Comparison) -> bool:
    """Some complete pass of every rank has all samples of the reference's."""
    first = next((p for p in c.passes if p.training and p.ended), None)
    if first is None:
        return False
    every = [next((p for p in own if p.training and p.ended), None) for own in c.rank_passes]
    return all(p is not None and set(p.samples) >= set(first.samples) for p in every)


def _same_order(c: Comparison) -> bool:
    """On every rank, and not in the reference."""
    return all(map(_repeats, c.rank_passes)) and not _repeats(c.passes)


def _trained(run: RunRecord) -> set[str]:
    """The samplers of what it trains on."""
    trained = {each.loader for each in passes(run) if each.training}
    return {loader.sampler for loader in run.loaders if loader.number in trained}


def _shuffles(run: RunRecord) -> bool:
    return any(isinstance(event, ShuffleRecord) for event in run.events)


def _repeats(own: tuple[LoaderPass, ...]) -> bool:
    training = [p for p in own if p.training]
    rebuilt = len({p.loader for p in training}) == len(training)  # a loader for each pass
    pairs = [(p, q) for p, q in pairwise(training) if (rebuilt or p.loader == q.loader) and p.ended]
    return bool(pairs) and all(p.samples[: len(q.samples)] == q.samples for p, q in pairs)


def _some(part: Samples) -> str:
    return f"{numbered(part.total(), 'sample')} ({some(sorted({str(s) for _, s in part}))})"
