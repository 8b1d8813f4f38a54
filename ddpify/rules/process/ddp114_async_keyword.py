"""DDP114: a move to the GPU that is spelled with the keyword ``async``."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import CORRECT, PROJECT, SCRIPT, changed
from ddpify.settings import Settings
from ddpify.source import Source


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per move of a tensor that says ``async``, in any file that is read."""
    for tree in facts.trees.values():
        yield from lint_file(tree.source)


def lint_file(source: Source) -> Iterable[Finding]:
    """Yield the same for one file."""
    for site, value in source.moves_spelled_async:
        yield Finding(
            "DDP114",
            site,
            "`async` is a reserved word since Python 3.7: the file cannot be imported",
            Severity.ERROR,
            (
                Edit(How.ARGUMENT, site, "", "async"),
                Edit(How.ARGUMENT, site, value, "non_blocking"),
            ),
        )


RULE = Rule(
    "DDP114",
    "async-keyword",
    "`x.cuda(async=True)` was renamed `non_blocking=True` in torch 0.4, as Python 3.7 made `async`"
    " a reserved word. No Python that today's torch runs on can read the file.",
    "pytorch PR#4999, python bpo-30406",
    check,
    bad=(
        changed(
            SCRIPT,
            (
                "        cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n",
                "        y = y.cuda(async=True)  # DDP114\n"
                "        cost = nn.functional.cross_entropy(net(x.to(device)), y)\n",
            ),
        ),
        changed(
            PROJECT,
            (
                "picture, kind = picture.to(place), kind.to(place)\n",
                "picture, kind = picture.cuda(async=True), kind.to(place)  # DDP114\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            PROJECT,
            (
                "picture, kind = picture.to(place), kind.to(place)\n",
                "picture, kind = picture.cuda(non_blocking=True), kind.to(place)  # async=True\n",
            ),
        ),
    ),
    lint_file=lint_file,
)
