"""All ranks enter the same collectives in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from ddpify.verify.checks.base import numbered, result, skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.recording import Backward, CollectiveRecord, ForwardRecord, RunRecord
from ddpify.verify.verdict import Check

_TITLE = "collectives"
# Their tensors are lists on one rank, or of a size of each rank's own.
_OWN_SIZES = ("gather", "scatter", "all_to_all", "object")
_KINDS = {  # as torch calls them, since 2.13 and before
    "all_gather_single": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_single": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "all_reduce": "all-reduce",
}
_FRAME = ("init_process_group", "destroy_process_group")


def collectives(c: Comparison) -> Check:
    entered = [run.collectives for run in c.ranks]
    if not any(entered) and not any(run.backend for run in c.ranks):
        return skipped("collectives", _TITLE, "there is no process group")
    details = list(accumulation(c))
    wrong = first_mismatch(entered)
    if wrong is not None and not any(call.ranks for calls in entered for call in calls):
        calls = (e[wrong] if wrong < len(e) else None for e in entered)
        rows = [f"rank {rank}: {_described(call)}" for rank, call in enumerate(calls)]
        details = [f"call {wrong}:", *rows, *details]
        return result("collectives", _TITLE, True, f"differ from call {wrong} on", details)
    return result("collectives", _TITLE, False, _measured(c), details)


def first_mismatch(entered: Sequence[Sequence[CollectiveRecord]]) -> int | None:
    """Backends pair the n-th call of one rank with the n-th of another, whatever they are.

    Sites may differ: a guarded barrier may be balanced by another one.
    """
    for number, calls in enumerate(zip_longest(*entered)):
        if len({_pairing(call) for call in calls}) > 1:
            return number
    return None


def accumulation(c: Comparison) -> tuple[str, ...]:
    """Whether micro-batches really went without an all-reduce, where there are several."""
    run = c.ranks[0]
    backwards, reduced = _per_step(run, c.groups)
    if backwards < 2 or not reduced:
        return ()
    saved = "accumulation skips the others" if reduced < backwards else "none is skipped"
    how = "reduced" if c.groups else "all-reduced"
    return (f"{backwards:g} backwards per optimizer step, {reduced:g} {how}: {saved}",)


def _per_step(run: RunRecord, groups: int) -> tuple[float, float]:
    """Backwards, and how many of them are reduced: by DDP, or in each of FSDP's groups."""
    steps = max(len(run.steps), 1)
    backwards = sum(isinstance(event, Backward) for event in run.events)
    forwards = [event for event in run.events if isinstance(event, ForwardRecord) and event.grad]
    scattered = sum(call.fsdp and "reduce_scatter" in call.name for call in run.collectives)
    reduced = scattered / groups if groups else sum(f.sync for f in forwards)
    return round(backwards / steps, 2), round(reduced / steps, 2)


def _measured(c: Comparison) -> str:
    run = c.ranks[0]
    calls = [call for call in run.collectives if call.name not in _FRAME]
    steps = max(len(run.steps), 1)
    own = f"{sum(not call.fsdp for call in calls) / steps:.3g} of the script's"
    if c.groups:
        each = f"{own}, and for each of {numbered(c.groups, 'sharded group')} {_sharded(c, steps)}"
    else:
        each = f"{own} and {_per_step(run, 0)[1]:.3g} all-reduced forwards"
    return f"{numbered(len(calls), 'call')}; per optimizer step {each}"


def _sharded(c: Comparison, steps: int) -> str:
    """FSDP's own collectives by kind and, with hybrid sharding, ranks that take part.

    More than one reduction in a step is right, and time that is lost: said where all can see it.
    """
    found = Counter((call.name, call.ranks) for call in c.ranks[0].collectives if call.fsdp)
    backwards, reduced = _per_step(c.ranks[0], c.groups)
    wasted = f"; none of {backwards:g} backwards is skipped" if reduced >= backwards >= 2 else ""
    kinds = ", ".join(
        _times(count / steps / c.groups, _KINDS.get(name, name))
        + (f" of {ranks} ranks" if ranks else "")
        for (name, ranks), count in found.items()
    )
    return kinds + wasted


def _times(count: float, kind: str) -> str:
    return f"{count:.3g} {kind}" + ("" if count == 1 else "s")


def _pairing(call: CollectiveRecord | None) -> tuple[str, int]:
    if call is None:
        return "", 0
    own = any(part in call.name for part in _OWN_SIZES)
    return call.name, 0 if own and call.name != "all_gather" else call.size


def _described(call: CollectiveRecord | None) -> str:
    if call is None:
        return "none"
    size = f" of {call.size} bytes" if call.size else ""
    return f"{call.name}{size} at {call.site}" + ("" if call.done else " (still in it)")
