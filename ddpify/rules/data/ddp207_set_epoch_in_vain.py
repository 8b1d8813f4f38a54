"""DDP207: set_epoch is called, but not so that it does anything."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.data.epochs import repeated, without_effect
from ddpify.rules.examples import BY_HAND, CORRECT, changed

MESSAGE = "set_epoch has no effect here: {}"
ADVICE = "call sampler.set_epoch(epoch) with the epoch's number, before each pass begins"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per call of ``set_epoch`` that is in vain."""
    for told in repeated(run):
        for call, why in without_effect(told):
            because = ((told.epochs.site, "the epochs"), (told.one.loop.site, "the pass"))
            yield Finding(
                "DDP207", call.site, MESSAGE.format(why), Severity.ERROR, (), ADVICE, because
            )


RULE = Rule(
    "DDP207",
    "set-epoch-without-effect",
    "Only the sampler has set_epoch: a DataLoader and a BatchSampler raise AttributeError (of a"
    " batch sampler, batch_sampler.sampler is meant). The permutation is made when a pass begins:"
    " a call within the pass changes the next one only, and the same number for every epoch gives"
    " the same order in every epoch.",
    "torch.utils.data.distributed.DistributedSampler; pytorch#40043; BUGS D02",
    bad=(
        changed(BY_HAND, ("sampler.set_epoch(epoch)", "sampler.set_epoch(0)  # DDP207")),
        changed(BY_HAND, ("sampler.set_epoch(epoch)", "loader.set_epoch(epoch)  # DDP207")),
    ),
    good=(
        *CORRECT,
        changed(BY_HAND, ("sampler.set_epoch(epoch)", "loader.sampler.set_epoch(epoch)")),
    ),
    lint=lint,
    severity=Severity.ERROR,
)
