"""DDP410: accumulated losses are not divided by their number."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.accumulation import Accumulation, accumulations
from ddpify.rules.shared.losses import made_by, reduction

_DIVIDES = frozenset("div_ mul_ _foreach_div_ _foreach_mul_ divide_ multiply_".split())


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per accumulation of plain means."""
    for one in accumulations(run):
        rounds = one.window(0)
        if rounds is None or rounds.micro is None or _divided(one):
            continue
        assert one.backward.receiver is not None
        made = made_by(one.backward.receiver)
        if made is not None and reduction(made) == "mean":
            yield Finding(
                "DDP410",
                one.backward.site,
                f"the losses of {rounds.micro} micro-batches are added up: the gradient is"
                f" {rounds.micro} times that of the whole batch",
                Severity.WARNING,
                advice=f"backward loss / {rounds.micro}",
                because=((one.step.site, "the step"),),
            )


def _divided(one: Accumulation) -> bool:
    """Whether gradients or the learning rate are divided instead."""
    run = one.run
    if any(store.key == "grad" for store in run.stores):
        return True
    divides = (c for c in run.calls if c.method in _DIVIDES)
    if any("grad" in call.module.text(call.node) for call in divides):
        return True
    made = one.step.receiver.things if one.step.receiver is not None else ()
    rates = [t.call.kwargs.get("lr") for t in made if t.call is not None]
    return any(isinstance(rate.atoms[0], Symbol) for rate in rates if rate is not None)


RULE = Rule(
    "DDP410",
    "loss-not-divided",
    "backward() adds to the gradient. Without a division, k micro-batches with a mean loss each"
    " give k times the gradient of one batch of that size (measured: 4 times with k = 4).",
    "torch.nn.parallel.DistributedDataParallel.no_sync; BUGS G10",
    lint=lint,
    severity=Severity.WARNING,
    bad=(
        trained(loop="""
            for i, (x, y) in enumerate(loader):
                last = (i + 1) % 4 == 0 or i + 1 == len(loader)
                with nullcontext() if last else model.no_sync():
                    F.cross_entropy(model(x), y).backward()  # DDP410
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
    good=(
        trained(loop="""
            for i, (x, y) in enumerate(loader):
                last = (i + 1) % 4 == 0 or i + 1 == len(loader)
                with nullcontext() if last else model.no_sync():
                    loss = F.cross_entropy(model(x), y)
                    (loss / 4).backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
    fixes=False,
)
