"""DDP404: some ranks may skip a step, stop, or save on a condition of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.edits import is_local
from ddpify.rules.examples import CORRECT, LEARNER, PROJECT, SCRIPT, SINGLE, changed
from ddpify.settings import Settings
from ddpify.source import Site

COLLECTIVE = ("torch.save", "ddpify.runtime.save_on_main")


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per condition on local data that decides a collective."""
    yield from _retries(facts)
    yield from _swallowed(facts)
    seen: set[Site] = set()
    for call in _collectives(facts):
        for guard in call.where.conditions():
            if guard.site not in seen and is_local(facts, guard.test):
                seen.add(guard.site)
                yield Finding(
                    "DDP404",
                    guard.site,
                    "each rank would decide this from its own samples; ranks that disagree hang",
                    Severity.ERROR,
                    (),
                    "make the condition the same everywhere: reduce the value on all ranks first",
                    ((call.site, "decides whether this runs"),),
                )


def _retries(facts: Facts) -> Iterable[Finding]:
    """Training again in an except handler: the rank that failed would be alone in it."""
    for loop in facts.training:
        for site in loop.backward.where.stack:
            tree = facts.tree(site)
            node = tree.statement(site)
            above = tree.ancestors(node) if node is not None else ()
            if any(isinstance(a, ast.ExceptHandler) for a in above):
                yield Finding(
                    "DDP404",
                    site,
                    "a rank that fails would train again alone, and wait for the others for ever",
                    Severity.WARNING,
                    (),
                    "let the job fail and start it again with the smaller setting",
                )


def _swallowed(facts: Facts) -> Iterable[Finding]:
    """``try: ... loss.backward() ... except Exception: continue``: one rank skips the step."""
    for site in dict.fromkeys(loop.backward.site for loop in facts.training):
        tree = facts.tree(site)
        below = tree.statement(site)
        for above in tree.ancestors(below) if below is not None else ():
            if isinstance(above, (ast.For, ast.While, ast.FunctionDef)):
                break
            if isinstance(above, ast.Try) and below in above.body and _goes_on(above):
                yield Finding(
                    "DDP404",
                    tree.site(above.handlers[0]),
                    "a rank that fails in this step would go on alone while the others wait for it",
                    Severity.WARNING,
                    (),
                    "let the error end the job, or sort out bad samples before the step",
                    ((site, "gradients are averaged here"),),
                )
            below = above if isinstance(above, ast.stmt) else below


def _goes_on(node: ast.Try) -> bool:
    last = [handler.body[-1] for handler in node.handlers]
    return any(not isinstance(statement, ast.Raise) for statement in last)


def _collectives(facts: Facts) -> list[Call]:
    backward = [loop.backward for loop in facts.training]
    return [*backward, *facts.steps, *facts.named(*COLLECTIVE)]


RULE = Rule(
    "DDP404",
    "divergent-step",
    "Backward, optimizer steps with synchronised gradients and checkpoints need every rank. A"
    " condition on local data (a NaN, a loss, a missing label) sends some ranks past them: the"
    " job hangs, or every later gradient is paired with another step's.",
    "pytorch/audio#3749; BUGS C03, C04; PATTERNS B2.12-17",
    check,
    bad=(
        changed(
            SINGLE,
            (
                "            adam.step()\n",
                "            adam.step()\n"
                "            if objective.item() < 0.01:  # DDP404\n                break\n",
            ),
        ),
        changed(
            SCRIPT,
            (
                "        cost.backward()\n",
                "        if torch.isnan(cost):  # DDP404\n            continue\n"
                "        cost.backward()\n",
            ),
        ),
        changed(
            LEARNER,
            (
                "            off.backward()\n",
                "            if off.item() < 1e-6:  # DDP404\n                break\n"
                "            off.backward()\n",
            ),
        ),
        changed(  # a loss that the model makes of all it is given
            SINGLE,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "net([signal, label]).mean()\n            if objective == 0:  # DDP404\n"
                "                continue\n",
            ),
        ),
        changed(
            SINGLE,
            (
                "            objective.backward()\n",
                "            try:\n                objective.backward()\n"
                "            except RuntimeError:  # DDP404\n                continue\n",
            ),
        ),
        changed(
            PROJECT,
            (
                "        F.cross_entropy(brain(picture), kind).backward()\n",
                "        if (kind > 0).any():  # DDP404\n"
                "            F.cross_entropy(brain(picture), kind).backward()\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            SINGLE,
            (
                "            objective.backward()\n",
                "            try:\n                objective.backward()\n"
                "            except RuntimeError:\n                print(label)\n"
                "                raise\n",
            ),
        ),
        changed(
            SCRIPT,
            (
                "        cost.backward()\n",
                "        if torch.isnan(reduce_mean(cost)):\n            continue\n"
                "        cost.backward()\n",
            ),
        ),
        changed(
            SCRIPT,
            (
                "        cost.backward()\n",
                "        if n > 15 and len(feed) < 3:\n            continue\n"
                "        cost.backward()\n",
            ),
        ),
    ),
)
