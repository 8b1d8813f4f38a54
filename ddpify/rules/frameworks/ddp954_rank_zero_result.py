"""DDP954: what a rank_zero_only function returns is None elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RANK1, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.shared.uses import uses

_TRAINER = "    trainer = L.Trainer"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per such result that other ranks take apart."""
    for call in run.calls:
        if call.target is None or not call.ranks & RANK1:
            continue
        if _is_none_elsewhere(call) and _is_taken_apart(run, call):
            yield Finding(
                "DDP954",
                call.site,
                "on all ranks but 0 this is None, and what follows takes it apart there",
                Severity.ERROR,
                advice="compute it on all ranks, or broadcast it",
                because=((call.target.site, "runs on rank 0 only"),),
            )


def _is_none_elsewhere(call: RankCall) -> bool:
    """Whether a decorator has ranks other than 0 go on with None."""
    result = call.result
    if result is None or result.atoms[1] is not None:
        return False
    return any(origin.what.endswith(".rank_zero_only") for origin in result.origins)


def _is_taken_apart(run: Run, call: RankCall) -> bool:
    """Whether ranks other than 0 index the result or ask for an attribute of it."""
    apart = [use.site for use in uses(call) or () if use.takes_apart]
    return call.site in apart or any(
        site.within(later.site)
        for later in run.calls
        if later.order > call.order and later.ranks & RANK1 and not _is_looked_at(later)
        for site in apart
    )


def _is_looked_at(call: RankCall) -> bool:
    """Whether a condition of its own, not known here, stands before the call."""
    return any(not guard.test.known for guard in call.guards)


RULE = Rule(
    "DDP954",
    "rank-zero-only-result-used",
    "A function under @rank_zero_only runs on rank 0; everywhere else the call gives None at once"
    " (Lightning 2.6, measured). An attribute or an element of it ends those ranks with an error.",
    "lightning.pytorch.utilities.rank_zero_only; BUGS L20",
    lint=lint,
    bad=(
        changed(
            LIGHTNING,
            (
                _TRAINER,
                '    path = name_of("runs")  # DDP954\n    print(path.upper())\n' + _TRAINER,
            ),
        ),
    ),
    good=(
        changed(
            LIGHTNING,
            (
                _TRAINER,
                '    path = name_of("runs")\n'
                "    if path is not None:\n        print(path.upper())\n" + _TRAINER,
            ),
        ),
    ),
    fixes=False,
)
