"""DDP405: training schemes that data parallelism does not keep."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.settings import Settings
from ddpify.source import Site


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
    for call in dict.fromkeys(first.site for first in _again(facts)):
        yield Finding(
            "DDP405",
            call,
            "a second backward over a retained graph is not averaged over the ranks",
            Severity.ERROR,
            (),
            "add the losses and go backward once",
        )


def _again(facts: Facts) -> Iterable[Call]:
    """Backwards that keep a graph for another one, to which some model brings no forward since.

    A forward makes the wrapper ready to average once more, all that the next backward adds.
    """
    for site in dict.fromkeys(loop.batch.site for loop in facts.training):
        calls = _first_of_each((c for c in facts.calls if c.name.endswith(".backward")), site)
        forwards = _first_of_each((f.call for f in facts.training_forwards), site)
        for first, second in zip(calls, (*calls[1:], *calls[:1]), strict=True):
            retained = first.kwargs.get("retain_graph")
            if retained is None or not (retained.known and retained.const):
                continue
            values = [v for v in (second.receiver, *second.args) if v is not None]
            outputs = {d for value in values for d in value.dep(Kind.FORWARD)}
            through = [f for f in facts.training_forwards if f.output in outputs]
            since = {c.site for c in forwards if _between(first.order, c.order, second.order)}
            renewed = {f.model for f in through if f.call.site in since}
            if not through or any(f.model not in renewed for f in through):
                yield first


def _first_of_each(calls: Iterable[Call], loop: Site) -> list[Call]:
    """The calls in a round of a loop, of which two are read."""
    inside = [c for c in calls if loop in {around.site for around in c.where.loops()}]
    first = {(c.site, c.where.stack): c for c in reversed(inside) if not c.where.no_grad}
    return sorted(first.values(), key=lambda call: call.order)


def _between(first: int, order: int, second: int) -> bool:
    """Whether something comes between two calls of a round, or from one round to the next."""
    return first < order < second if first < second else order > first or order < second


_TWICE = (
    "        cost.backward()\n",
    "        cost.backward()\n        (2 * cost).backward()\n",
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
        changed(
            SCRIPT,
            _TWICE,
            ("backward()\n        (", "backward(retain_graph=True)  # DDP405\n        ("),
        ),
    ),
    good=(
        *CORRECT,
        SINGLE,
        changed(SCRIPT, ("cost.backward()", "cost.backward(retain_graph=False)")),
        changed(SCRIPT, ("cost.backward()", "cost.backward(retain_graph=True)")),
        changed(  # the graph is kept, and a forward is made for each backward
            SCRIPT,
            (
                "        cost.backward()\n",
                "        cost.backward(retain_graph=True)\n"
                "        (cost + net(x.to(device)).square().mean()).backward()\n",
            ),
        ),
    ),
)
