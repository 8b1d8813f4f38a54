"""DDP965: each process of a Trainer would take whole batches, and so N times as many samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED
from ddpify.rules.frameworks.feeding import dealt, is_divided, loaders, place_of, unknown
from ddpify.rules.frameworks.lightnings import several

_MESSAGE: Final = (
    "each of N processes takes batches of this size, so a step sees N times as many samples"
)
_KEPT: Final = "or keep the size with --batch-size per-rank"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loader that is trained on, in a program that gets its devices."""
    if not run.assumed or not several(run):
        return
    for loader in loaders(run):
        if loader.trains and not is_divided(loader):
            fix, why = dealt(run, loader)
            advice = f"{why}, {_KEPT}" if why else ""
            yield Finding("DDP965", loader.made.site, _MESSAGE, Severity.ERROR, fix, advice)
    yield from _unknown(run)


def _unknown(run: Run) -> Iterator[Finding]:
    for one in unknown(run):
        if one.trains:
            yield Finding(
                "DDP965",
                place_of(one),
                f"what is trained on is not followed: {_MESSAGE}",
                Severity.ERROR,
                (),
                f"return a torch.utils.data.DataLoader, {_KEPT}",
            )


_SHARED: Final = "share_training(DataLoader(TensorDataset(self.x, self.x.abs()), 16, shuffle=True))"
_LOADER: Final = "DataLoader(TensorDataset(self.x, self.x.abs()), 16, shuffle=True)"

RULE = Rule(
    "DDP965",
    "batch-of-each-process",
    "A LightningDataModule knows one batch size, and of N devices each takes as much: N times the"
    " batch, an N-th of the steps, at the same learning rate (measured on two: 22 steps of 46, and"
    " other parameters from the first on). The batches of one process are divided instead.",
    "docs/lightning.md; glinscott/nnue-pytorch#390",
    lint=lint,
    bad=(
        changed(FED, (_SHARED, f"{_LOADER}  # DDP965")),
        changed(
            FED,
            (
                f"        return {_SHARED}\n",
                f"        rows = {_LOADER}  # DDP965\n        return rows\n",
            ),
        ),
    ),
    good=(FED, changed(FED, (_SHARED, _LOADER.replace("16", "16 // self.trainer.world_size")))),
)
