"""DDP215: each rank shuffles with a seed of its own before the samples are dealt."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.origins import CLOCK, IDENTITY, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import BY_HAND, CORRECT, changed

_DIFFER = IDENTITY | {CLOCK, RANDOM}


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per sampler whose seed differs between ranks."""
    for call in run.named(words.SAMPLER):
        seed = call.arg(4, "seed")
        causes = [o for o in spread(seed) if o.kind in _DIFFER] if seed is not None else []
        if causes:
            yield Finding(
                "DDP215",
                call.site,
                "its seed differs between ranks: some samples are dealt twice, others never",
                Severity.ERROR,
                (),
                "give all ranks the same seed; only the draws of augmentation may differ",
                ((causes[0].site, causes[0].what),),
            )


RULE = Rule(
    "DDP215",
    "sampler-seed-per-rank",
    "DistributedSampler makes one permutation on every rank and takes every n-th of it: the seed"
    " has to be the same everywhere. With seed + rank, two ranks saw 73 of 100 samples in an epoch,"
    " 27 of them twice (seeds 0 and 1).",
    "torch.utils.data.distributed.DistributedSampler: 'should be identical across all processes';"
    " BUGS D08",
    bad=(
        changed(
            BY_HAND,
            ("import os\n", "import os\nimport time\n"),
            (
                "DistributedSampler(data)",
                "DistributedSampler(data, seed=int(time.time()))  # DDP215",
            ),
        ),
        changed(
            BY_HAND,
            (
                "DistributedSampler(data)",
                "DistributedSampler(data, seed=7 + dist.get_rank())  # DDP215",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            (
                "sampler = DistributedSampler(data)",
                "torch.manual_seed(7 + dist.get_rank())\n"
                "    sampler = DistributedSampler(data, seed=7)",
            ),
        ),
    ),
    lint=lint,
    severity=Severity.ERROR,
    fixes=False,
)
