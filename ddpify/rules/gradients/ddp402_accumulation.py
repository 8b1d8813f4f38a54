"""DDP402: gradient accumulation synchronises in every micro-batch."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts, TrainingLoop
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import CORRECT, LEARNER, SCRIPT, changed
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.inner_loops import inner_loops
from ddpify.rules.gradients.rounds import is_the_same_in_all
from ddpify.rules.shared.accumulation import accumulations
from ddpify.rules.shared.micro_batches import averaged_by_hand, saves_messages
from ddpify.rules.shared.step_conditions import steps_after
from ddpify.settings import Settings
from ddpify.source import Site

_ADVICE = (
    "put forward and backward of the micro-batches that do not step under"
    " `with gradient_sync(model, sync=<the step's condition>):`"
)
# torch 2.13 ends with "expect_autograd_hooks_ INTERNAL ASSERT FAILED" otherwise.
_STATIC = "a static graph has to be averaged from the first backward on: leave out --static-graph"
SKIPS = (".no_sync", "ddpify.runtime.gradient_sync", ".set_requires_gradient_sync")


_UNDER = (
    "run forward and backward of the micro-batches that do not step under `with model.no_sync():`"
)
_BY_APEX = (
    "call model.disable_allreduce() for the micro-batches that do not step, enable_allreduce() for"
    " the last one; apex has no no_sync()"
)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one note per training loop whose optimizer steps less often than it goes backward."""
    if any(call.name in SKIPS for call in facts.calls):
        return
    for loop in facts.training:
        if _accumulates(facts, loop) and not averaged_by_hand(facts, settings, loop):
            static = settings.static_graph
            yield Finding(
                "DDP402",
                loop.backward.site,
                "gradients are accumulated, and every micro-batch is all-reduced: right but slower",
                Severity.NOTE,
                fix := () if static else saves_messages(facts, settings, loop),
                "" if fix else _STATIC if static else _ADVICE,
            )


def _accumulates(facts: Facts, loop: TrainingLoop) -> bool:
    mine = [s for s in facts.steps if loop.batch in s.where.loops()]
    held = {g.site for g in loop.backward.where.guards}
    own = [{g.site for g in s.where.guards} - held for s in mine]
    some = bool(mine) and all(any(not _is_setting(facts, loop, g) for g in sites) for sites in own)
    return some or steps_after(facts, loop)


def _is_setting(facts: Facts, loop: TrainingLoop, test: Site) -> bool:
    return is_the_same_in_all(facts, loop.batch, test)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per accumulation in which every micro-batch is all-reduced."""
    if any(run.methods("no_sync", "set_requires_gradient_sync")):
        return
    found = [(o.wrap, o.backward, o.step) for o in accumulations(run) if not o.switches]
    known = {backward for _, backward, _ in found}
    found += [one for one in inner_loops(run) if one[1] not in known]
    for wrap, backward, step in found:
        if wrap.flag("find_unused_parameters") is False:
            yield Finding(
                "DDP402",
                backward.site,
                "where gradients are accumulated, every micro-batch is all-reduced: right but"
                " slower",
                Severity.NOTE,
                (),
                _BY_APEX if wrap.by_apex else _UNDER,
                ((step.site, "the step"),),
            )


RULE = Rule(
    "DDP402",
    "accumulation-without-no-sync",
    "DistributedDataParallel all-reduces in every backward. With accumulation only the backward"
    " before the optimizer step needs it; the others can run under no_sync().",
    "DistributedDataParallel.no_sync; pytorch#43201; BUGS G06",
    check,
    lint=lint,
    words=("no_sync",),
    severity=Severity.NOTE,
    bad=(
        changed(
            SCRIPT,
            (
                "    for x, y in feed:\n        solver.zero_grad()\n",
                "    for i, (x, y) in enumerate(feed):\n",
            ),
            ("cost.backward()\n", "(cost / 4).backward()  # DDP402\n"),
            (
                "        solver.step()\n",
                "        if (i + 1) % 4 == 0:\n            solver.step()\n"
                "            solver.zero_grad()\n",
            ),
        ),
        changed(
            LEARNER,
            ("for inputs, wanted in self", "for part, (inputs, wanted) in enumerate(self"),
            ('feeds["fit"]:\n            self.solver.zero_grad()\n', 'feeds["fit"]):\n'),
            ("off.backward()\n", "off.backward()  # DDP402\n"),
            (
                "            self.solver.step()\n",
                "            if part % 2:\n                self.solver.step()\n"
                "                self.solver.zero_grad()\n",
            ),
        ),
        trained(
            loop="""
            optimizer.zero_grad()
            for x, y in islice(loader, 4):
                (F.cross_entropy(model(x), y) / 4).backward()  # DDP402
            optimizer.step()
            """,
            top="from itertools import islice",
        ),
    ),
    good=(
        trained(
            loop="""
            optimizer.zero_grad()
            for part, (x, y) in enumerate(islice(loader, 4)):
                with nullcontext() if part == 3 else model.no_sync():
                    (F.cross_entropy(model(x), y) / 4).backward()
            optimizer.step()
            """,
            top="from itertools import islice",
        ),
        *CORRECT,
        changed(  # another step where a setting says so: each batch is one of its own
            SCRIPT,
            ("setup_distributed()\ndev", "setup_distributed()\nOWN = False\ndev"),
            (
                "        solver.step()\n",
                "        if not OWN:\n            solver.step()\n        else:\n"
                "            for weight in net.parameters():\n"
                "                weight.data.add_(weight.grad, alpha=-0.1)\n",
            ),
        ),
        changed(
            SCRIPT,
            (
                "    for x, y in feed:\n        solver.zero_grad()\n",
                "    for i, (x, y) in enumerate(feed):\n",
            ),
            (
                "        cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n"
                "        cost.backward()\n        solver.step()\n",
                "        last = (i + 1) % 4 == 0\n        with gradient_sync(net, sync=last):\n"
                "            cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n"
                "            (cost / 4).backward()\n        if last:\n            solver.step()\n"
                "            solver.zero_grad()\n",
            ),
            ("is_main_process,\n", "gradient_sync, is_main_process,\n"),
        ),
    ),
)
