"""DDP115: a batch that is taken by the ``next`` method that iterators had in Python 2."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, SINGLE, changed
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per ``batches.next()`` of an iterator over a loader."""
    for call in facts.calls:
        passes = call.receiver if call.name == ".next" and not call.args else None
        if passes is None or not passes.of(Kind.ITERATOR) or not loaders_in(passes):
            continue
        if call.receiver_site is not None:
            code = f"{facts.text(call.receiver_site)}.__next__()"
            yield Finding(
                "DDP115",
                call.site,
                "iterators of a DataLoader have no method `next` since torch 1.13",
                Severity.ERROR,
                (edit(facts, How.REPLACE, call.site, code),),
            )


RULE = Rule(
    "DDP115",
    "next-method",
    "The iterator of a `DataLoader` had the `next` method of Python 2 until torch 1.13, and those"
    " of wrapped loaders never did. `__next__` is what both have.",
    "pytorch#87955",
    check,
    bad=(
        changed(
            SINGLE,
            (
                "    for round_",
                "    batches = iter(fitting)\n    print(batches.next()[0].shape)  # DDP115\n"
                "    for round_",
            ),
        ),
        changed(
            SINGLE,
            (
                "    for round_",
                "    print(iter(fitting).next()[0].shape)  # DDP115\n    for round_",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            SINGLE,
            ("    for round_", "    print(next(iter(fitting))[0].shape)\n    for round_"),
        ),
    ),
)
