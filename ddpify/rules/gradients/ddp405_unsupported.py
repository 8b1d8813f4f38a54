"""DDP405: training schemes that data parallelism does not keep."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per construct that has no data-parallel equivalent."""
    for optimizer in {
        t for step in facts.steps for t in (step.receiver.things if step.receiver else ())
    }:
        if optimizer.kind is Kind.OPTIMIZER and optimizer.name.endswith("LBFGS"):
            yield Finding(
                "DDP405",
                optimizer.born,
                "LBFGS decides from the loss of one rank: ranks diverge and hang",
                Severity.ERROR,
                (),
                "use a first-order optimizer, or train in one process",
            )
    for site in facts.phases:
        yield Finding(
            "DDP405",
            site,
            "one loop trains and, in another phase, evaluates: it can be shared out for neither",
            Severity.ERROR,
            (),
            "write one loop for each, then run again",
        )
    for loop in facts.training:
        retained = loop.backward.kwargs.get("retain_graph")
        if retained is not None and retained.known and retained.const:
            yield Finding(
                "DDP405",
                loop.backward.site,
                "a second backward over a retained graph is not averaged over the ranks",
                Severity.ERROR,
                (),
                "add the losses and go backward once",
            )


RULE = Rule(
    "DDP405",
    "unsupported-scheme",
    "Line searches on a local loss and second backwards over one graph look the same under DDP and"
    " train something else.",
    "BUGS G13; PATTERNS B1.2, B2.19",
    check,
    bad=(
        changed(
            SINGLE,
            ("torch.optim.Adam(net.parameters())", "torch.optim.LBFGS(net.parameters())  # DDP405"),
        ),
        changed(
            TRAINER,
            (
                "torch.optim.RMSprop(self.pupil.parameters(), lr=1e-3)",
                "torch.optim.LBFGS(self.pupil.parameters(), lr=1e-3)  # DDP405",
            ),
        ),
        changed(SCRIPT, ("cost.backward()\n", "cost.backward(retain_graph=True)  # DDP405\n")),
    ),
    good=(
        *CORRECT,
        SINGLE,
        changed(SCRIPT, ("cost.backward()", "cost.backward(retain_graph=False)")),
    ),
)
