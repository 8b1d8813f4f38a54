"""DDP966: Lightning's sampler repeats samples, which an evaluation then counts twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED
from ddpify.rules.frameworks.feeding import GONE_OVER, dealt, loaders, meeting, place_of, unknown
from ddpify.rules.frameworks.lightnings import several

_MESSAGE: Final = (
    "Lightning repeats samples until all processes have as many: they are counted twice where the"
    " number of samples is no multiple of N"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loader that is evaluated, in a program that gets its devices."""
    if not run.assumed or not several(run):
        return
    met = meeting(run)
    for loader in loaders(run):
        if loader.trains:
            continue
        fix, why = dealt(run, loader)
        if fix and met is not None:
            where = f"{met.site}: all processes meet there in each batch"
            fix, why = (), f"{where}, so they must have equally many"
        part = why == GONE_OVER  # each process would go over its part
        severity = Severity.ERROR if part else Severity.WARNING
        yield Finding("DDP966", loader.made.site, _MESSAGE, severity, fix, why)
    for one in unknown(run):
        if not one.trains:
            why = "return a torch.utils.data.DataLoader"
            yield Finding("DDP966", place_of(one), _MESSAGE, Severity.WARNING, (), why)


_SHARED: Final = "share_evaluation(DataLoader(TensorDataset(self.x, self.x.abs()), 16))"
_LOADER: Final = "DataLoader(TensorDataset(self.x, self.x.abs()), 16)  # DDP966"
_LOGGED: Final = "    def validation_step(self, batch, batch_idx):\n        x, y = batch\n"

RULE = Rule(
    "DDP966",
    "samples-repeated-in-evaluation",
    "Lightning's DistributedSampler gives all processes equally many samples of an evaluation: it"
    " repeats the first ones (measured: 298 of 297 on two, 300 on four). Each process takes whole"
    " batches of one process's instead, and no sample twice; not where all meet in each batch.",
    "docs/lightning.md; lightning#12862; BUGS D05",
    lint=lint,
    bad=(
        changed(FED, (_SHARED, _LOADER)),
        changed(
            FED,
            (_SHARED, _LOADER),
            (_LOGGED, f"{_LOGGED}        self.all_gather(x)\n"),
        ),
    ),
    good=(FED,),
    severity=Severity.WARNING,
)
