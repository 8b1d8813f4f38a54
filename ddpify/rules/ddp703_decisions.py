"""DDP703: ranks decide from numbers that each computed for itself."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.accumulators import accumulates, loaders_in
from ddpify.facts.events import LoopEnd
from ddpify.facts.model import Facts, Status
from ddpify.facts.values import Kind, Value, flat_deps
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, SINGLE, changed
from ddpify.settings import Settings
from ddpify.source import Site

COLLECTIVE = ("torch.save", "ddpify.runtime.save_on_main")


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per evaluation that all ranks repeat and then decide from."""
    if facts.status is Status.DISTRIBUTED:
        return
    decided = _decided_from(facts)
    done: set[Site] = set()
    for end in facts.replicated:
        names = _names(facts, end)
        loaders = {t.born for t in loaders_in(end.loop.over)}
        if end.loop.site in done or not names or not loaders & decided:
            continue
        done.add(end.loop.site)
        joined = ", ".join(names)
        given = f"({joined})" if len(names) > 1 else joined
        yield Finding(
            "DDP703",
            end.loop.site,
            f"a decision is made from {joined}: ranks may differ in the last digit and part ways",
            Severity.ERROR,
            (edit(facts, How.AFTER, end.loop.site, f"{joined} = broadcast({given})"),),
        )


def _names(facts: Facts, end: LoopEnd) -> tuple[str, ...]:
    node = facts.tree(end.loop.site).statement(end.loop.site)
    if node is None:
        return ()
    summed = tuple(name for name in end.others if accumulates(node, name))
    return (*end.sums, *end.means, *summed)


def _decided_from(facts: Facts) -> set[Site]:
    """Loaders whose batches reach a condition on a collective, or a scheduler."""
    values: list[Value] = []
    for call in (*[loop.backward for loop in facts.training], *facts.named(*COLLECTIVE)):
        values += [guard.test for guard in call.where.conditions()]
    for call in facts.calls:
        if call.name == ".step" and call.receiver and call.receiver.of(Kind.SCHEDULER):
            values += [*call.args, *call.kwargs.values()]
    batches = {d for value in values for d in flat_deps(value) if d.kind is Kind.BATCH}
    return {t.born for b in batches if b.inner is not None for t in b.inner.things}


RULE = Rule(
    "DDP703",
    "decision-from-own-number",
    "Every rank evaluates the same samples, but not always with the same bits: kernels are chosen"
    " by benchmark, sums run in another order. Best-so-far, early stopping and ReduceLROnPlateau"
    " then differ between ranks, and the next collective hangs. Rank 0's number decides for all.",
    "BUGS C04, C05; CONTRACT: decisions from metrics",
    check,
    bad=(
        changed(
            SINGLE,
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)\n",
                "in pairs:  # DDP703\n            guess = net(signal.cuda()).argmax(1)\n"
                "            print(guess)\n",
            ),
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
                "        if accuracy(net, holdout) > 0.9:\n            break\n",
            ),
        ),
        changed(
            SINGLE,
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)\n",
                "in pairs:  # DDP703\n            guess = net(signal.cuda()).argmax(1)\n"
                "            print(guess)\n",
            ),
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n    torch',
                "        if accuracy(net, holdout) > 0.9:\n            torch",
            ),
        ),
    ),
    good=(
        *CORRECT,
        SINGLE,
    ),
)
