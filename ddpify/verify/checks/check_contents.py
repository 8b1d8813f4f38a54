"""The same sample is the same on both sides, and ranks do not draw the same noise."""

from __future__ import annotations

from ddpify.verify.checks.base import result, skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.verdict import Check, Verdict

_TITLE = "sample contents"


def contents(c: Comparison) -> Check:
    found, streams = c.contents, same_streams(c)
    if not found.compared and not streams:
        return skipped("contents", _TITLE, "no sample was seen on both sides")
    details = [f"the ranks draw the same noise: same {stream} random stream" for stream in streams]
    measured = f"{found.compared - found.wrong} of {found.compared} samples alike"
    if not found.wrong:
        return result("contents", _TITLE, bool(streams), measured, details)
    details += [f"step {found.step}: {found.text}"] if found.step is not None else []
    if found.wrong_in_evaluation:
        details.append(f"{found.wrong_in_evaluation} of them in evaluation")
    if not streams and augmented(c):
        hint = "the data set draws random numbers: --neutralise augmentation"
        said = (hint, *details)
        return Check("contents", _TITLE, Verdict.UNDECIDED, measured, said, ("augmentation",))
    return result("contents", _TITLE, True, measured, details)


def augmented(c: Comparison) -> bool:
    """Noise explains that contents differ: both sides draw while they load."""
    ranks = any(run.noise.augmentation for run in c.ranks)
    return "augmentation" in c.noises and bool(c.one.noise.augmentation) and ranks


def same_streams(c: Comparison) -> tuple[str, ...]:
    """Random streams that noise is drawn from, in the same state on all ranks.

    Loaders draw one seed for each pass: only a stream that moves in most steps feeds noise.
    """
    if c.nproc < 2:
        return ()
    if {"dropout", "augmentation"} & set(c.noises):
        return moving_alike(c)
    # A number for the whole batch may well be the same on all ranks.
    rows = {stream for run in c.ranks for stream in run.noise.rows} if "draws" in c.noises else ()
    return tuple(stream for stream in moving_alike(c, 0) if stream in rows) if rows else ()


def moving_alike(c: Comparison, share: float = 0.5) -> tuple[str, ...]:
    """Streams that move in this share of the steps, and on all ranks are alike after each."""
    count = min(len(run.steps) for run in c.ranks)
    found = []
    for name in c.ranks[0].steps[0].random if count else ():
        states = [[run.steps[n].random.get(name) for n in range(count)] for run in c.ranks]
        moves = sum(one != other for one, other in zip(states[0], states[0][1:], strict=False))
        if moves and moves >= share * (count - 1) and all(each == states[0] for each in states):
            found.append(name)
    return tuple(found)
