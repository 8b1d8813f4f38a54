"""DDP401: the loss is a sum over the batch, and DDP averages."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Status
from ddpify.facts.roles import backwards
from ddpify.facts.values import Kind, Measure
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import CORRECT, LEARNER, SCRIPT, SINGLE, TRAINER, changed
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per backward of a sum, and a note for a loss that is not followed."""
    if facts.status is Status.DISTRIBUTED:
        return
    for site, calls in once(backwards(facts.calls)).items():
        call = calls[0]
        loss = call.receiver
        if loss is None or loss.dep(Kind.WORLD) or call.receiver_site is None:
            continue
        if loss.measure is Measure.SUM:
            yield Finding(
                "DDP401",
                site,
                "the loss is a sum over the batch: averaging over N ranks makes its gradient 1/N",
                Severity.ERROR,
                (edit(facts, How.REPLACE, call.receiver_site, "({} * get_world_size())"),),
            )
        elif loss.measure is not Measure.MEAN and loss.dep(Kind.BATCH):
            yield _unproven(call)
        elif loss.dep(Kind.CRITERION):
            yield _varying(call)


def _varying(call: Call) -> Finding:
    return Finding(
        "DDP401",
        call.site,
        "the loss divides by weights or by the targets that count, which differ between ranks",
        Severity.NOTE,
        (),
        "averaging the ranks is then not exact: sum the loss and divide by the sum of all ranks",
    )


def _unproven(call: Call) -> Finding:
    return Finding(
        "DDP401",
        call.site,
        "the loss could not be shown to be a mean over the batch",
        Severity.NOTE,
        (),
        "check it: a mean needs nothing, a sum must be multiplied by get_world_size(), and a mean"
        " over a varying count (masks, positives) needs the count of all ranks",
    )


RULE = Rule(
    "DDP401",
    "loss-no-mean",
    "DistributedDataParallel averages the ranks' gradients. For a mean over samples, as many on"
    " each rank, that gives the gradient of the global mean; for a sum it gives 1/N of it, and for"
    " a mean over a count that differs between ranks (masks, ignore_index) something else.",
    "DistributedDataParallel docstring (gradients are averaged); PATTERNS B1.5",
    check,
    bad=(
        changed(
            SCRIPT,
            ("y.to(device))\n", 'y.to(device), reduction="sum")\n'),
            ("cost.backward()\n", "cost.backward()  # DDP401\n"),
        ),
        changed(
            LEARNER,
            ("nn.MSELoss()", 'nn.MSELoss(reduction="sum")'),
            ("off.backward()\n", "off.backward()  # DDP401\n"),
        ),
        changed(
            TRAINER,
            (
                "F.mse_loss(self.pupil(run.to(local_device())), then.to(local_device()))",
                "(self.pupil(run.to(local_device())) - then.to(local_device())).abs().sum()",
            ),
            ("off.backward()\n", "off.backward()  # DDP401\n"),
        ),
        changed(
            SINGLE,
            ("objective = nn.functional.cross_entropy(", "objective = LOSS("),
            ("    adam = ", "    LOSS = nn.CrossEntropyLoss(ignore_index=3)\n    adam = "),
            ("objective.backward()\n", "objective.backward()  # DDP401\n"),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            ("y.to(device))\n", 'y.to(device), reduction="sum")\n'),
            ("cost.backward()", "(cost * get_world_size()).backward()"),
            ("is_main_process,\n", "get_world_size, is_main_process,\n"),
        ),
        changed(  # a sum that the script divides by its batch itself
            SCRIPT,
            ("y.to(device))\n", 'y.to(device), reduction="sum") / len(x)\n'),
        ),
    ),
)
