"""DDP974: a module that Lightning shards is averaged, tuned or looked at as if it were whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.facts.model import Facts
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING, SHARDED
from ddpify.rules.frameworks.lightning_shards import modules
from ddpify.rules.frameworks.lightning_weights import uses
from ddpify.settings import Settings
from ddpify.strategies import of

_CODE: Final = "DDP974"
_STRATEGY: Final = "lightning.pytorch.strategies.ModelParallelStrategy"
_AVERAGE: Final = "StochasticWeightAveraging"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield what the program does with weights that it would do with shards."""
    for module in modules(facts) if facts.trainers and of(settings).shards else ():
        for site, why in dict.fromkeys(uses(module)):
            yield Finding(_CODE, site, why, Severity.ERROR, advice="or take --strategy ddp")


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per average of weights in a program whose weights are shards."""
    if not any(run.named(_STRATEGY)):
        return
    for call in run.named(f"lightning.pytorch.callbacks.{_AVERAGE}"):
        yield Finding(
            _CODE,
            call.site,
            f"{_AVERAGE} copies shards into whole weights: training ends with a RuntimeError",
            Severity.ERROR,
            advice="average the weights of checkpoints after training",
        )


_IMPORT: Final = (
    "import torch\n",
    f"import torch\nfrom lightning.pytorch.callbacks import {_AVERAGE} as Average\n",
)
_MADE: Final = "    trainer = L.Trainer("
_GIVEN: Final = "strategy=ModelParallelStrategy(2, 1)"
_DDP: Final = 'strategy="ddp"'

RULE = Rule(
    _CODE,
    "weights-of-a-sharded-lightning-module",
    "Between the steps of a module that fully_shard has shared out each rank has a part of each"
    " weight: a norm is that of the part (measured: 0.0 and 0.59 on two ranks), state_dict() has"
    " shards, an average of weights ends with an error.",
    "lightning.pytorch.strategies.ModelParallelStrategy (2.6.6); docs/lightning.md",
    check,
    lint=lint,
    words=(_AVERAGE,),
    bad=(
        changed(
            SHARDED,
            _IMPORT,
            (_MADE, f"    swa = Average(1e-2)  # DDP974\n{_MADE}"),
            (_GIVEN, f"{_GIVEN}, callbacks=[swa]"),
        ),
        changed(
            SHARDED,
            (
                f"{_GIVEN}, max_epochs=3)",
                f"{_GIVEN},\n"
                f"        callbacks=[L.pytorch.callbacks.{_AVERAGE}(0.1)],  # DDP974\n    )",
            ),
        ),
    ),
    good=(
        SHARDED,
        changed(LIGHTNING, _IMPORT, (_DDP, f"{_DDP}, callbacks=[Average(0.01)]")),
    ),
)
