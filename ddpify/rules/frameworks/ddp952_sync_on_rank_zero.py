"""DDP952: two options of self.log that exclude each other."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import logs


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per call with ``sync_dist=True`` and ``rank_zero_only=True``."""
    for call in logs(run):
        if _on(call, "sync_dist") and _on(call, "rank_zero_only"):
            yield Finding(
                "DDP952",
                call.site,
                "with rank_zero_only=True the number is not reduced, sync_dist=True or not",
                Severity.ERROR,
                # on some ranks only, a reduction would wait for the others
                (Edit(How.ARGUMENT, call.site, "", "rank_zero_only"),) if call.everywhere else (),
                "log it on all ranks, without rank_zero_only",
            )


def _on(call: RankCall, flag: str) -> bool:
    value = call.kwargs.get(flag)
    return value is not None and value.constant is True


RULE = Rule(
    "DDP952",
    "sync-and-rank-zero-only",
    "rank_zero_only=True says that rank 0 alone calls self.log, so that nothing is reduced,"
    " whatever sync_dist says: each process has its own number, and rank 0's is logged (measured"
    " with Lightning 2.6: 7 and 8 where 7.5 is right; older versions may hang).",
    "lightning#19620; BUGS M05",
    lint=lint,
    bad=(
        changed(LIGHTNING, ("sync_dist=True)", "sync_dist=True, rank_zero_only=True)  # DDP952")),
    ),
    good=(LIGHTNING,),
)
