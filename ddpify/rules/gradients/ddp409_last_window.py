"""DDP409: the last, shorter window of an epoch is neither synchronised nor stepped."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.left_unaveraged import left_unaveraged
from ddpify.rules.shared.accumulation import Accumulation, accumulations, disagrees, skips
from ddpify.rules.shared.switched_off import switched_off


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per loop over batches that leaves micro-batches behind."""
    for step, averaging in left_unaveraged(run):
        yield Finding(
            "DDP409",
            step.site,
            "the last, shorter window is stepped with each rank's own gradients: the ranks drift"
            " apart",
            Severity.ERROR,
            advice="average them here as well",
            because=((averaging.site, "those of whole windows are averaged here"),),
        )
    off = {store for store, _ in switched_off(run)}
    for one in accumulations(run) if skips(run) else ():
        if one.nested or not (one.holds or one.switches) or disagrees(one):
            continue
        if not off.isdisjoint(one.switches):
            continue  # by DDP408: no round is synchronised
        left = _stepped_later(one) if _leaves(one) else None
        if left is not None:
            yield Finding(
                "DDP409",
                one.site,
                "the last micro-batches of an epoch are not synchronised, and stepped behind the"
                " loop: each rank goes its own way",
                Severity.WARNING,
                advice="also sync in the last round (`or i + 1 == len(loader)`)",
                because=((left.site, "the step"),),
            )
        elif _leaves(one) and _over_batches(one) and not _cleared(one):
            yield Finding(
                "DDP409",
                one.site,
                "unless the number of batches is a multiple, the last micro-batches of an epoch are"
                " not synchronised, and their gradients leak into the next epoch's first step",
                Severity.WARNING,
                advice="also sync and step in the last round (`or i + 1 == len(loader)`), or"
                " zero_grad() at the start of an epoch",
                because=((one.step.site, "the step"),),
            )


def _leaves(one: Accumulation) -> bool:
    rounds = one.window(1)
    if rounds is None:
        return False
    last = rounds.numbers[-1]
    return rounds.happens(one.step, last) is False and one.unsynced(rounds, last) is True


def _stepped_later(one: Accumulation) -> RankCall | None:
    """The step for what is left, behind the loop."""
    optimizers = set(one.step.receiver.things) if one.step.receiver is not None else set()
    for call in one.run.methods("step"):
        behind = call.order > one.step.order and call.loops == one.loop_path[:-1]
        if behind and call.receiver and not optimizers.isdisjoint(call.receiver.things):
            return call
    return None


def _over_batches(one: Accumulation) -> bool:
    """Whether the loop goes once over a loader, in a loop over epochs."""
    over = one.loop.over
    if over is None or len(one.loop_path) < 2:
        return False
    names = {thing.name for thing in over.sources()}
    return words.LOADER in names and not any(name.startswith("itertools.") for name in names)


def _cleared(one: Accumulation) -> bool:
    """Whether gradients are cleared between epochs."""
    epochs = one.loop_path[:-1]
    return any(
        call.loops and call.loops[-1] in epochs and one.loop not in call.loops
        for call in one.run.methods("zero_grad")
    )


RULE = Rule(
    "DDP409",
    "last-partial-window",
    "With an epoch of 10 batches and windows of 4, two micro-batches are left: they were run under"
    " no_sync(), so that each rank keeps its own, and they are added to the first window of the"
    " next epoch (measured: a gradient of 9 instead of 6).",
    "BUGS G09",
    lint=lint,
    severity=Severity.WARNING,
    bad=(
        trained(loop="""
            for i, (x, y) in enumerate(loader):
                last = (i + 1) % 5 == 0
                with nullcontext() if last else model.no_sync():  # DDP409
                    loss = F.cross_entropy(model(x), y) / 5
                    loss.backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
    good=(
        trained(loop="""
            optimizer.zero_grad()
            for i, (x, y) in enumerate(loader):
                last = (i + 1) % 5 == 0
                with nullcontext() if last else model.no_sync():
                    loss = F.cross_entropy(model(x), y) / 5
                    loss.backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
    fixes=False,
)
