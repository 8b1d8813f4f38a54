"""DDP219: a training loop keeps samples for later steps, each rank its own."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.containers import GROWS, LISTS
from ddpify.facts.events import Call
from ddpify.facts.joining import flat_measure
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.edits import once
from ddpify.rules.examples import CORRECT, SINGLE, changed, marked
from ddpify.settings import Settings
from ddpify.source import Site

_SAMPLES = (Measure.SAMPLES, Measure.ENTRY)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield a note per place where a list that outlives a step gets samples, and is used in it."""
    loops = {loop.batch.site for loop in facts.training}
    inside = [c for c in facts.calls if any(one.site in loops for one in c.where.loops())]
    used = {thing for call in inside if call.name[1:] not in GROWS for thing in _given(call)}
    grown = tuple(
        c for c in inside if c.name[1:] in GROWS and c.args and _is_of_samples(c.args[-1])
    )
    for site, calls in once(grown).items():
        if any(used & set(_outliving(call, loops)) for call in calls):
            yield Finding(
                "DDP219",
                site,
                "each rank keeps samples of its own for later steps: as many on each, in N times as"
                " many steps",
                Severity.NOTE,
                (),
                "keep 1/N of them on each rank where it matters from how many steps ago they are",
            )


def _given(call: Call) -> Iterable[Thing]:
    receiver = (call.receiver,) if call.receiver is not None else ()
    return (t for value in (*receiver, *call.args) for t in value.of(*LISTS))


def _is_of_samples(value: Value) -> bool:
    return flat_measure(value) in _SAMPLES and bool(value.dep(Kind.FORWARD, Kind.BATCH))


def _outliving(call: Call, training: set[Site]) -> Iterable[Thing]:
    """The lists that a call adds to and that were made before the loop over the batches."""
    loops = [one for one in call.where.loops() if one.site in training]
    function = call.where.function
    for thing in call.receiver.of(*LISTS) if call.receiver is not None else ():
        inside = any(thing.born.within(one.site) for one in loops)
        own = function is not None and thing.born.within(function.site)
        if not inside and (not own or any(one.function is function for one in loops)):
            yield thing


_POOL = """class Pool:
    def __init__(self, size):
        self.size, self.kept = size, []

    def swap(self, rows):
        given = []
        for row in rows:
            if len(self.kept) < self.size:
                self.kept.append(row)  # DDP219
                given.append(row)
            else:
                place = random.randrange(self.size)
                given.append(self.kept[place])
                self.kept[place] = row
        return torch.stack(given)

"""
_LOSS = "            objective.backward()\n"

RULE = Rule(
    "DDP219",
    "kept-samples",
    "A pool of earlier samples (image pools of GANs, replay buffers) fills from the batches. Each"
    " rank fills its own from 1/N of each batch, so that its samples are from N times as many steps"
    " ago, and there are N times as many in all.",
    "Shrivastava et al., Learning from Simulated and Unsupervised Images, section 2.3 (the history"
    " buffer, of a size B, is drawn from for half of each batch)",
    check,
    severity=Severity.NOTE,
    bad=(
        changed(
            SINGLE,
            ("import argparse\n", "import argparse\nimport random\n"),
            ("def accuracy", f"{_POOL}def accuracy"),
            ("    for round_", "    pool = Pool(50)\n    for round_"),
            (
                _LOSS,
                f"            objective += net(pool.swap(signal.cuda())).square().mean()\n{_LOSS}",
            ),
        ),
        marked(
            changed(  # whole batches
                SINGLE,
                ("import argparse\n", "import argparse\nimport random\n"),
                ("    for round_", "    kept = []\n    for round_"),
                (
                    _LOSS,
                    "            kept.append(signal.cuda())\n"
                    f"            objective += net(random.choice(kept)).square().mean()\n{_LOSS}",
                ),
            ),
            "DDP219",
            "kept.append(signal.cuda())",
        ),
    ),
    good=(
        *CORRECT,
        changed(  # those of this step
            SINGLE,
            ("import argparse\n", "import argparse\nimport random\n"),
            (
                _LOSS,
                "            kept = []\n            kept.append(signal.cuda())\n"
                f"            objective += net(random.choice(kept)).square().mean()\n{_LOSS}",
            ),
        ),
        changed(  # a list of this step
            SINGLE,
            (
                _LOSS,
                "            rows = []\n            for row in signal.cuda():\n"
                "                rows.append(row)\n"
                f"            objective += net(torch.stack(rows)).square().mean()\n{_LOSS}",
            ),
        ),
    ),
)
