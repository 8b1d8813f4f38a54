"""DDP706: dist.reduce gives its sum to one rank, and all ranks go by the value."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.feeds import REDUCED_AND_LEFT, REDUCED_FOR_ALL, REDUCED_FOR_ONE
from ddpify.rules.metrics.metrics import acted_on


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per ``reduce`` whose result decides something on all ranks."""
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


RULE = Rule(
    "DDP706",
    "reduced-on-one-rank-used-on-all",
    "dist.reduce(x, dst) leaves the sum in x on dst only: rank 1 kept 2.0 where 3.0 was expected. A"
    " comparison with the best value so far then comes out differently per rank, and the ranks part"
    " at the next collective.",
    "pytorch#77562; torch.distributed.reduce; BUGS M03",
    bad=(REDUCED_FOR_ALL, REDUCED_AND_LEFT),
    good=(REDUCED_FOR_ONE,),
    lint=lint,
    severity=Severity.ERROR,
)
