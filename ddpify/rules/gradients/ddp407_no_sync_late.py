"""DDP407: no_sync() around a backward whose forward ran outside of it."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import differentiated
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.accelerators import HOLDS, micro_batches, within
from ddpify.rules.shared.wrapped import live, receives, wraps


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per ``no_sync()`` that holds a backward and no forward."""
    for wrap in wraps(run):
        for hold in (c for c in run.methods("no_sync") if receives(c, wrap.wrapper)):
            yield from _late(run, hold, {wrap.wrapper}, "no_sync()")
    for hold in run.named(*HOLDS):
        if hold.method != "accumulate" or micro_batches(hold) != 1:
            models = {thing for value in hold.args for thing in value.things}
            yield from _late(run, hold, models, f"{hold.method}()")


def _late(run: Run, hold: RankCall, models: set[RankThing], what: str) -> Iterable[Finding]:
    calls = [c for c in run.methods("__call__", "forward") if c.grad and _is_of(c, models)]
    if any(within(call, hold) for call in calls):
        return
    losses = [differentiated(b) for b in run.backwards if within(b, hold)]
    if any(_reaches(loss, calls) for loss in losses if loss is not None):
        yield Finding(
            "DDP407",
            hold.site,
            f"{what} has no effect here: DDP decides in the forward, which runs outside of it, so"
            " that every micro-batch is all-reduced",
            Severity.WARNING,
            advice=f"put the forward under {what} too",
        )


def _is_of(call: RankCall, models: set[RankThing]) -> bool:
    return call.receiver is not None and not models.isdisjoint(call.receiver.things)


def _reaches(loss: RankValue, calls: list[RankCall]) -> bool:
    made = {thing.call for thing in live(loss)}
    return any(call in made for call in calls)


RULE = Rule(
    "DDP407",
    "no-sync-without-forward",
    "DistributedDataParallel decides in its forward whether the next backward is synchronised."
    " no_sync() around the backward alone changes nothing: measured, 8 all-reduces instead of 2.",
    "DistributedDataParallel.no_sync docs (the forward pass should be included); BUGS G07",
    lint=lint,
    severity=Severity.WARNING,
    bad=(
        trained(loop="""
            for i, (x, y) in enumerate(loader):
                last = i % 4 == 3 or i + 1 == len(loader)
                loss = F.cross_entropy(model(x), y) / 4
                with nullcontext() if last else model.no_sync():  # DDP407
                    loss.backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
    good=(
        trained(loop="""
            for i, (x, y) in enumerate(loader):
                last = i % 4 == 3 or i + 1 == len(loader)
                with nullcontext() if last else model.no_sync():
                    loss = F.cross_entropy(model(x), y) / 4
                loss.backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
    fixes=False,
)
