"""What the trained models say of one batch."""

from __future__ import annotations

from collections.abc import Sequence

from ddpify.verify import distance
from ddpify.verify.checks.base import excused, result, skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.passes import LoaderPass
from ddpify.verify.recording import ProbeRecord, RunRecord
from ddpify.verify.verdict import Check

_TITLE = "probe batch"


def probe(c: Comparison) -> Check:
    found = [run.probe for run in (c.one, *c.ranks)]
    present = [each for each in found if each is not None and not each.missing]
    if len(present) < len(found):
        reasons = [each.missing for each in found if each is not None and each.missing]
        return skipped("probe", _TITLE, reasons[0] if reasons else "a run ended before it")
    if len({each.module for each in present}) > 1:
        kinds = " and ".join(dict.fromkeys(each.module for each in present))
        return skipped("probe", _TITLE, f"the programs call other modules: {kinds}")
    if buffers_part(c):
        return _ranks_differ(c)
    apart = _difference(present[0], present[1])
    measured = f"relative difference {apart:.3g}, tolerance {c.tolerance:.3g}"
    check = result("probe", _TITLE, not apart <= c.tolerance, f"{measured}, all ranks identical")
    return excused(check, c)


def buffers_part(c: Comparison) -> bool:
    """The ranks' models differ in what they say."""
    return len({run.probe.digest for run in c.ranks if run.probe is not None}) > 1


def _ranks_differ(c: Comparison) -> Check:
    """Batch statistics of a rank's own are no harm where nothing is evaluated with them."""
    measured = "differs between ranks"
    if c.ranks_part is not None or c.ranks_start_apart:
        return result("probe", _TITLE, True, measured, ("so do the parameters",))
    if "batchnorm" in c.noises and any(map(_ends_in_training, c.ranks, c.rank_passes)):
        why = "the run ends in training: batch statistics are each rank's own"
        return skipped("probe", _TITLE, why)
    detail = "the parameters are identical: buffers (batch statistics) differ between ranks"
    return result("probe", _TITLE, True, measured, (detail,))


def _ends_in_training(run: RunRecord, own: Sequence[LoaderPass]) -> bool:
    """Nothing was evaluated with the statistics that it has now."""
    return run.status == "stopped" or not own or own[-1].training


def _difference(one: ProbeRecord, other: ProbeRecord) -> float:
    if one.output is None or other.output is None:
        return 0.0 if one.digest == other.digest else float("inf")
    return distance.relative(one.output, other.output)
