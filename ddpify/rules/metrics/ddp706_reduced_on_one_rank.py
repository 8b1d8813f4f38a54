"""DDP706: dist.reduce gives its sum to one rank, and all ranks go by the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.feeds import REDUCED_AND_LEFT, REDUCED_FOR_ALL, REDUCED_FOR_ONE
from ddpify.rules.metrics.metrics import acted_on, shown_elsewhere


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per ``reduce`` whose result decides something on all ranks, or is shown by
    one that has not got it."""
    for call in run.named("torch.distributed.reduce"):
        uses = list(acted_on(run, call.site)) if call.everywhere else []
        if uses:
            yield Finding(
                "DDP706",
                call.site,
                "only one rank gets the sum, the others keep their own value, and all go by it:"
                " different decisions, then wrong numbers or a hang",
                Severity.ERROR,
                (),
                "use all_reduce, or broadcast the value afterwards",
                tuple(uses[:1]),
            )
        else:
            yield from _shown(run, call)


def _shown(run: Run, call: RankCall) -> Iterator[Finding]:
    """Where no rank shows the result but such as have their own value still."""
    shared = collective(call)
    root = shared.given("dst") if shared is not None and shared.whole else None
    if root is None or root.constant not in (0, 1) or not call.everywhere:
        return
    shows = next(shown_elsewhere(run, call.site, 1 << root.constant), None)
    if shows is not None:
        yield Finding(
            "DDP706",
            call.site,
            "only one rank gets the sum, and another one shows it: that is its own value still",
            Severity.WARNING,
            (),
            "reduce to the rank that shows it, or use all_reduce",
            ((shows.site, "shown here"),),
        )


RULE = Rule(
    "DDP706",
    "reduced-on-one-rank-used-on-all",
    "dist.reduce(x, dst) leaves the sum in x on dst only: rank 1 kept 2.0 where 3.0 was expected. A"
    " comparison with the best value so far then comes out differently per rank, and the ranks part"
    " at the next collective. Shown by another rank than dst, it is that rank's own value.",
    "pytorch#77562; torch.distributed.reduce; BUGS M03",
    bad=(REDUCED_FOR_ALL, REDUCED_AND_LEFT),
    good=(REDUCED_FOR_ONE,),
    lint=lint,
    severity=Severity.ERROR,
    fixes=False,
)
