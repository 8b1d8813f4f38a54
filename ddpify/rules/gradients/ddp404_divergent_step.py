"""DDP404: some ranks may skip a step, stop, or save on a condition of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.facts.events import Call, Where
from ddpify.facts.model import Facts
from ddpify.facts.values import Thing
from ddpify.names import INSTALLED, OF_CHECKPOINTS
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, is_local, is_whole_test
from ddpify.rules.examples import CORRECT, LEARNER, PROJECT, SCRIPT, SINGLE, changed
from ddpify.rules.gradients.agreed import agreed
from ddpify.rules.gradients.rounds import EQUAL_ROUNDS, OWN_ROUNDS, uneven
from ddpify.rules.gradients.swallowed import swallowed
from ddpify.rules.shared.alone import Alone, spoken
from ddpify.rules.shared.micro_batches import averaged_by_hand
from ddpify.settings import Settings
from ddpify.source import Site

COLLECTIVE = ("torch.save", *OF_CHECKPOINTS)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per condition of a rank's own that decides a collective."""
    for part in (_retries, _alone, agreed, uneven):
        yield from part(facts)
    yield from swallowed(facts, ((where, site) for where, site, _ in _meetings(facts)))
    seen: set[Site] = set()
    hands = {one.backward: averaged_by_hand(facts, settings, one) for one in facts.training}
    for call in _collectives(facts):
        fix = hands.get(call, ())
        if call in hands and _is_averaged_by_hand(facts, call):
            continue
        for guard in call.where.conditions():
            if guard.site not in seen and is_local(facts, guard.test):
                seen.add(guard.site)
                yield Finding(
                    "DDP404",
                    guard.site,
                    "each rank would decide this from its own samples; ranks that disagree hang",
                    Severity.ERROR,
                    fix,
                    "make the condition the same everywhere: reduce the value on all ranks first",
                    ((call.site, "decides whether this runs"),),
                )


def _is_averaged_by_hand(facts: Facts, backward: Call) -> bool:
    """Whether a helper averages what the rounds of its loop have added, or gives all a backward."""
    averages = facts.named(f"{INSTALLED}.average_gradients", f"{INSTALLED}.backward_on_all")
    loops = backward.where.loops()
    return any(loop in loops for one in averages for loop in one.where.loops()[:1])


def _alone(facts: Facts) -> Iterable[Finding]:
    """A clock, a draw or a file that decides: rank 0's answer is as good as any, for all."""
    alone = Alone(facts)
    found: dict[Site, _Decided] = {}
    for where, site, name in _meetings(facts):
        held, exits = alone.inside(where)
        for guard in (*held, *exits):
            asked = alone.by(guard.test)
            if asked is not None and not is_local(facts, guard.test):
                decided = found.setdefault(guard.site, _Decided(asked, site, set(), set()))
                side = decided.then if guard.holds or guard in exits else decided.otherwise
                side.add("an end" if guard in exits else name)
    for at, decided in found.items():
        if decided.then != decided.otherwise:
            yield decided.finding(facts, at)


@dataclass(frozen=True)
class _Decided:
    """A condition of one rank's own and how ranks meet after it, if it holds and if not.

    Where each branch has its backward they meet anyway.
    """

    asked: Thing
    first: Site
    then: set[str]
    otherwise: set[str]

    def finding(self, facts: Facts, at: Site) -> Finding:
        tests = is_whole_test(facts, at)
        return Finding(
            "DDP404",
            at,
            f"each rank would decide this by {spoken(self.asked)}; ranks that disagree hang",
            Severity.ERROR,
            (edit(facts, How.REPLACE, at, "broadcast({})"),) if tests else (),
            "" if tests else "make it the whole test of an `if` or `while`, then run again",
            ((self.asked.born, "asked here"), (self.first, "decides whether this runs")),
        )


def _meetings(facts: Facts) -> Iterator[tuple[Where, Site, str]]:
    """The places where ranks meet, or will once they are several, and how."""
    for call in (*_collectives(facts), *facts.named(".backward")):
        yield call.where, call.site, call.name
    for end in facts.ends:
        if end.communicates:
            yield end.where, end.loop.site, "reduce"


def _retries(facts: Facts) -> Iterable[Finding]:
    """Training again in an except handler: the rank that failed would be alone in it."""
    for loop in facts.training:
        for site in loop.backward.where.stack:
            if facts.tree(site).handles(site):
                yield Finding(
                    "DDP404",
                    site,
                    "a rank that fails would train again alone, and wait for the others for ever",
                    Severity.WARNING,
                    (),
                    "let the job fail and start it again with the smaller setting",
                )


def _collectives(facts: Facts) -> list[Call]:
    return [*(loop.backward for loop in facts.training), *facts.steps, *facts.named(*COLLECTIVE)]


RULE = Rule(
    "DDP404",
    "divergent-step",
    "Backward, optimizer steps with synchronised gradients and checkpoints need every rank. A"
    " condition on local data (a NaN, a loss, a missing label), on the clock, on a random draw or"
    " on a file that is there or not sends some ranks past them: the job hangs, or every later"
    " gradient is paired with another step's. Rank 0's clock, draw and file decide for all.",
    "pytorch/audio#3749; BUGS C03, C04; PATTERNS B2.12-17",
    check,
    bad=(
        OWN_ROUNDS,
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
        changed(
            SINGLE,
            ("import torch\n", "import time\n\nimport torch\n"),
            ("    for round_ in", "    begun = time.time()\n    for round_ in"),
            (
                "            adam.step()\n",
                "            adam.step()\n"
                "            if time.time() - begun > 3600:  # DDP404\n                break\n",
            ),
        ),
        changed(  # in a block of its own: what follows the block is skipped, too
            LEARNER,
            (
                "import torch\nfrom torch import nn\n",
                "import random\n\nimport torch\nfrom torch import nn\n",
            ),
            (
                "            off.backward()\n",
                "            if times > 3:\n"
                "                if random.random() < 0.1:  # DDP404\n"
                "                    continue\n"
                "            off.backward()\n",
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\n", "import os\n\nimport torch\n"),
            (
                "        cost.backward()\n",
                '        if os.path.exists("stop"):  # DDP404\n            break\n'
                "        cost.backward()\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        EQUAL_ROUNDS,
        changed(
            SINGLE,
            (
                "            objective.backward()\n",
                "            try:\n                objective.backward()\n"
                "            except RuntimeError:\n                print(label)\n"
                "                raise\n",
            ),
        ),
        changed(  # of several ranks none goes on
            SINGLE,
            (
                "            objective.backward()\n",
                "            try:\n                objective.backward()\n"
                "            except RuntimeError:\n"
                "                if torch.distributed.get_world_size() > 1:\n"
                "                    raise\n                print(label)\n",
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
        changed(  # shown by the clock: nobody is waited for
            SINGLE,
            ("import torch\n", "import time\n\nimport torch\n"),
            ("    for round_ in", "    shown = time.time()\n    for round_ in"),
            (
                "            adam.step()\n",
                "            adam.step()\n"
                "            if time.time() - shown > 10:\n"
                "                shown = time.time()\n                print(round_)\n",
            ),
        ),
        changed(  # drawn while all ranks have one stream
            SINGLE,
            ("import torch\n", "import random\n\nimport torch\n"),
            ("    for round_ in", "    last = random.randint(2, 4)\n    for round_ in"),
            ("        print(", "        if round_ == last:\n            break\n        print("),
        ),
        changed(  # each way has its backward
            SINGLE,
            ("import torch\n", "import random\n\nimport torch\n"),
            (
                "            objective.backward()\n",
                "            if random.random() < 0.5:\n                objective.backward()\n"
                "            else:\n                (0.5 * objective).backward()\n",
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\n", "import time\n\nimport torch\n"),
            ("    begin_epoch,\n", "    begin_epoch,\n    broadcast,\n"),
            ("fork_random_streams()\nfor", "begun = time.time()\nfork_random_streams()\nfor"),
            (
                "        cost.backward()\n",
                "        if broadcast(time.time() - begun > 60):\n            break\n"
                "        cost.backward()\n",
            ),
        ),
    ),
)
