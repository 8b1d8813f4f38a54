"""DDP211: samples are dealt twice."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.passes import is_loader
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.feeds import DEALT_TWICE, PREPARED, PREPARED_ALONE
from ddpify.rules.shared.accelerators import deals_otherwise
from ddpify.rules.shared.feeds import dealt_by

_PREPARE = frozenset(
    {"accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_data_loader"}
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per DistributedSampler in a loader that accelerate deals once more."""
    for call in run.calls:
        if call.name in _PREPARE and not deals_otherwise(call):
            for sampler in _samplers(call):
                yield Finding(
                    "DDP211",
                    sampler.site or call.site,
                    "accelerate deals this loader's batches once more: half of the data is lost"
                    " with two ranks",
                    Severity.ERROR,
                    (),
                    "make the loader with shuffle=True and no sampler: prepare() puts one in",
                    ((call.site, "prepared here"),),
                )


def _samplers(call: RankCall) -> dict[RankThing, None]:
    loaders = [t for value in call.args for t in value.things if is_loader(t)]
    return dict.fromkeys(sampler for loader in loaders for sampler in dealt_by(loader))


RULE = Rule(
    "DDP211",
    "double-shard",
    "accelerate's prepare() gives each rank every n-th batch of the loader that it is handed. Of a"
    " loader that has a DistributedSampler already, two ranks of two got 2 of 8 samples each: half"
    " of the data is never trained on, and no error is raised.",
    "accelerate#3520; BUGS D12",
    bad=(DEALT_TWICE, PREPARED_ALONE),
    good=(PREPARED,),
    lint=lint,
    severity=Severity.ERROR,
)
