"""Modes of a program in which it does not train: `segment.py test`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.advice.arguments import DECLARES, options
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.values import Kind, Value


def training_modes(facts: Facts) -> frozenset[str]:
    """The first words after the program with which it trains; empty where that is not sure."""
    first = _first_positional(facts)
    found = [
        {word for name, word in _asked(facts, loop) if name == first} for loop in facts.training
    ]
    return frozenset().union(*found) if first and all(found) else frozenset()


def switches(facts: Facts) -> frozenset[str]:
    """The numbers among the options that are not 0 where it trains: ``if args.is_training:``."""
    numbers = {option.name for option in options(facts) if option.whole is not None}
    asked = [set(_switched(facts, loop)) & numbers for loop in facts.training]
    return frozenset.intersection(*map(frozenset, asked)) if asked else frozenset()


def _switched(facts: Facts, loop: TrainingLoop) -> Iterator[str]:
    for guard in loop.backward.where.guards:
        option = facts.values.get(guard.site)
        if guard.holds and option is not None and len(option.things) == 1:
            yield from (thing.name for thing in option.of(Kind.ARGUMENT))


def _first_positional(facts: Facts) -> str:
    """The name of what comes first on the command line: ``add_argument("cmd")``, subparsers."""
    for call in facts.calls:
        if call.name == ".add_subparsers":
            return _text(call.kwargs.get("dest"))
        spelled = _text(call.args[0]) if call.name in DECLARES and call.args else ""
        if spelled and not spelled.startswith("-"):
            return spelled
    return ""


def _text(value: Value | None) -> str:
    return value.const if value is not None and value.known and isinstance(value.const, str) else ""


def _asked(facts: Facts, loop: TrainingLoop) -> Iterator[tuple[str, str]]:
    """``cmd`` and ``train`` of ``if args.cmd == "train":`` around a training loop."""
    for guard in loop.backward.where.guards:
        test = facts.tree(guard.site).expression(guard.site)
        if not guard.holds or not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        option, word = test.left, test.comparators[0]
        if not isinstance(test.ops[0], ast.Eq) or not isinstance(option, ast.Attribute):
            continue
        if isinstance(word, ast.Constant) and isinstance(word.value, str):
            yield option.attr, word.value
