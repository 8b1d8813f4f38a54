"""DDP408: the optimizer steps in a round that is not synchronised."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.accumulation import (
    accumulations,
    disagrees,
    never_synced,
    reduced_by_hand,
    skips,
)
from ddpify.rules.shared.switched_off import switched_off


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per accumulation whose step and sync disagree."""
    off = list(switched_off(run))
    for one in accumulations(run) if skips(run) else ():
        if any(store in one.switches for store, _ in off):
            continue
        if (one.holds or one.switches) and disagrees(one) and not reduced_by_hand(run, one):
            yield Finding(
                "DDP408",
                one.site,
                "the optimizer steps after a micro-batch that is not synchronised: the ranks step"
                " with different gradients",
                Severity.ERROR,
                advice="decide once, before the forward, and use that for no_sync() and for step()",
                because=((one.step.site, "the step"),),
            )
    for store, step in off:
        yield Finding(
            "DDP408",
            store.site,
            "nothing turns this on again: from here on no backward is synchronised, and the ranks"
            " step with different gradients",
            Severity.ERROR,
            advice="turn it on before the forward of the last micro-batch of each step",
            because=((step.site, "the step"),),
        )
    for hold, step in never_synced(run) if skips(run) else ():
        yield Finding(
            "DDP408",
            hold.site,
            "every forward of the model runs under no_sync(), so no backward is synchronised: the"
            " ranks step with different gradients",
            Severity.ERROR,
            advice="leave the last micro-batch before each step out of no_sync(), forward included",
            because=((step.site, "the step"),),
        )


RULE = Rule(
    "DDP408",
    "no-sync-off-by-one",
    "A step needs the backward right before it to be synchronised: that one all-reduces all that"
    " was accumulated. Where the sync is decided by `i % k` and the step by `(i + 1) % k`, every"
    " step is made with local gradients: measured 4.5 on one rank and 7.5 on the other, with no"
    " error. The forward decides: with all of them under no_sync(), it makes no difference that the"
    " backward is outside. require_backward_grad_sync stays as it is set until it is set again.",
    "FunASR#3472; DistributedDataParallel.no_sync; BUGS G08",
    lint=lint,
    bad=(
        trained(loop="""
            for i, (x, y) in enumerate(loader):
                with model.no_sync() if i % 4 != 0 else nullcontext():  # DDP408
                    loss = F.cross_entropy(model(x), y) / 4
                    loss.backward()
                if (i + 1) % 4 == 0 or i + 1 == len(loader):
                    optimizer.step()
                    optimizer.zero_grad()
            """),
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                with model.no_sync():  # DDP408
                    loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            """),
    ),
    good=(
        trained(loop="""
            for i, (x, y) in enumerate(loader):
                last = i % 4 == 3 or i == len(loader) - 1
                with model.no_sync() if not last else nullcontext():
                    loss = F.cross_entropy(model(x), y) / 4
                    loss.backward()
                if (i + 1) % 4 == 0 or i + 1 == len(loader):
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
    fixes=False,
)
