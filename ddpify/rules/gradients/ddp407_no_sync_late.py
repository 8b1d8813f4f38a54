"""DDP407: no_sync() around a backward whose forward ran outside of it."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.wrapped import backwards, forwards, reached, receives, wraps


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per ``no_sync()`` that holds a backward and no forward."""
    for wrap in wraps(run):
        held = [c for c in run.methods("no_sync") if receives(c, wrap.wrapper)]
        calls = forwards(run, wrap) if held else []
        for hold in held:
            inside = [b for b in backwards(run) if _within(b, hold)]
            if any(_within(call, hold) for call in calls):
                continue
            if any(reached(backward, calls) for backward in inside):
                yield Finding(
                    "DDP407",
                    hold.site,
                    "no_sync() has no effect here: DDP decides in the forward, which runs outside"
                    " of it, so that every micro-batch is all-reduced",
                    Severity.WARNING,
                    advice="put the forward under no_sync() too",
                )


def _within(call: RankCall, hold: RankCall) -> bool:
    things = hold.result.things if hold.result is not None else ()
    return any(thing in value.things for value in call.contexts for thing in things)


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
)
