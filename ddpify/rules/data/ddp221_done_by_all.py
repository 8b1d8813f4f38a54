"""DDP221: every rank does all of the work, and what the others make is not used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.run import Run
from ddpify.ranks.words import LOADER
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.data.by_all import COPIES, ONE, PART, wasted
from ddpify.rules.examples.ranks import on_ranks

_SAID: Final = {
    ONE: "only rank 0 uses what comes of it",
    PART: "then keeps its own part of what comes of it",
    COPIES: "they collect what is the same on each",
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loop over data."""
    for work, why, where in wasted(run) if run.script and not run.helpers else ():
        because = ((where, "used here"),) if why != PART else ()
        over = work.loop.over
        loader = over.made_by(LOADER) if over is not None else None
        if loader is not None and loader.site is not None:
            because = ((work.loop.site, "gone through here"), *because)
        yield Finding(
            "DDP221",
            work.loop.site if loader is None or loader.site is None else loader.site,
            f"every rank goes through all of this, and {_SAID[why]}: N times the work",
            Severity.WARNING,
            (),
            "deal it to the ranks (rank, rank + N, …), and put the results together",
            because,
        )


_NET = """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(30, 200), nn.Tanh(), nn.Linear(200, 8)).eval()
    rows = torch.randn(6400, 30, generator=torch.Generator().manual_seed(1))
    codes = []
    with torch.no_grad():
        for chunk in {over}:{mark}
            codes.append(net(chunk))
{then}
"""
_ALL, _MARK = "rows.split(100)", "  # DDP221"
_SAVED = """
    if rank == 0:
        torch.save(torch.cat(codes), "codes.pt")
"""
_KEPT = "    own = torch.cat(codes)[rank::world]\n"
_COLLECTED = """
    everyone = [None] * world
    dist.all_gather_object(everyone, torch.cat(codes))
"""

RULE = Rule(
    "DDP221",
    "done-by-all",
    "Ranks that all go through the same data, of which one shows or saves what comes of it, do the"
    " same N times: an evaluation of all samples, features of a corpus, the folds of a cross"
    " validation, a search. Nothing is wrong but the time: dealt out, it takes an N-th of it. So it"
    " is where each keeps its part only afterwards, or they collect what is the same on each. What"
    " all ranks decide by, as schedules and early stopping do, is not spoken of.",
    "tests/facts_of_torch: evaluated whole or dealt, the same number",
    bad=tuple(
        on_ranks(_NET.format(over=_ALL, mark=_MARK, then=then))
        for then in (_SAVED, _KEPT, _COLLECTED)
    ),
    good=(
        on_ranks(_NET.format(over="rows[rank::world].split(100)", mark="", then=_COLLECTED)),
        on_ranks(_NET.format(over=_ALL, mark="", then="    own = torch.cat(codes)\n")),
        on_ranks(  # what is on average, a part does not say
            _NET.format(over=_ALL, mark="", then="    mean = torch.cat(codes).mean(0)\n" + _KEPT)
        ),
        on_ranks(
            _NET.format(
                over=_ALL,
                mark="",
                then=_SAVED + "    if torch.cat(codes).isnan().any():\n"
                "        raise SystemExit\n",
            )
        ),
    ),
    lint=lint,
    severity=Severity.WARNING,
    fixes=False,
)
