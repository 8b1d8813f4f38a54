"""``match``, and assignments to several targets, as two ranks run them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddpify.python import patterns
from ddpify.ranks import containers
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.logic import chain
from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.operations import compare
from ddpify.ranks.origins import Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import constant, key_of, symbol, text


@dataclass(frozen=True)
class Asked:
    """Knowledge of a value's parts and of a condition, in a frame."""

    m: RankMachine
    f: RankFrame

    def elements(self, value: RankValue) -> Sequence[RankValue] | None:
        """Those of a list; a list that grew in a loop may have more of them."""
        return containers.elements(value)

    def element(self, value: RankValue, number: int) -> RankValue:
        """Any of those that are known, or a part of the value."""
        if value.items and any(item.things for item in value.items):
            return containers.any_of(value.items)
        part = symbol(f"{getattr(value.atoms[0], 'key', '?')}[{number}]", value)
        if value.known and isinstance(value.atoms[0], tuple) and self.m.live == ALL:
            atoms = tuple(a[number] if number < len(a) else None for a in value.atoms)
            return replace(part, atoms=(atoms[0], atoms[1]))
        return part

    def gathered(self, value: RankValue, elements: Sequence[RankValue] | None) -> RankValue:
        """The value with these elements."""
        known = value.items if elements is None else tuple(elements)
        return replace(symbol(f"{key_of(value)}[:]", value), items=known)

    def entry(self, value: RankValue, key: ast.expr) -> RankValue:
        """An entry of a dict."""
        index = self.m.evaluate(self.f, key)
        found = containers.entry(value, index)
        return found or symbol(f"{key_of(value)}[{key_of(index)}]", value)

    def others(self, value: RankValue, keys: Sequence[ast.expr]) -> RankValue:
        """The dict without some entries."""
        for key in keys:
            value = containers.without(value, self.m.evaluate(self.f, key), None)
        return replace(value)

    def attribute(self, value: RankValue, name: str, pattern: ast.pattern) -> RankValue:
        """An attribute of an object."""
        node = ast.Attribute(ast.Name("subject", ast.Load()), name, ast.Load())
        ast.copy_location(node, pattern)
        return self.m.attribute(self.f, value, name, node)

    def places(self, cls: ast.expr) -> Sequence[str]:
        """``__match_args__``, or the fields in their order."""
        for thing in self.m.evaluate(self.f, cls).things:
            return self.m.places(thing)
        return ()

    def equals(self, value: RankValue, other: ast.expr) -> RankValue:
        """``value == other``."""
        return compare("Eq", value, self.m.evaluate(self.f, other))

    def is_constant(self, value: RankValue, constant_: object) -> RankValue:
        """``value is None``."""
        return compare("Is", value, constant(constant_))

    def all_of(self, tests: Sequence[RankValue]) -> RankValue:
        """``and``."""
        return chain(True, list(tests)) if tests else self.said(True)

    def any_of(self, tests: Sequence[RankValue]) -> RankValue:
        """``or``."""
        return chain(False, list(tests))

    def unknown(self, value: RankValue, pattern: ast.pattern) -> RankValue:
        """A condition that has its own name."""
        one = Symbol(f"{text(value.atoms[0])}:{ast.unparse(pattern)}")
        return RankValue((one, one), (), frozenset(), value.origins)

    def said(self, answer: bool) -> RankValue:
        """A known one."""
        return constant(answer)


def match(m: RankMachine, f: RankFrame, node: ast.Match) -> None:
    """The first case whose pattern matches, and whose condition holds."""
    _cases(m, f, node, m.evaluate(f, node.subject), node.cases)


def _cases(
    m: RankMachine, f: RankFrame, node: ast.Match, subject: RankValue, cases: list[ast.match_case]
) -> None:
    if not cases or not m.live:
        return
    case, *others = cases
    asked = Asked(m, f)
    test = patterns.test(asked, case.pattern, subject)
    if case.guard is not None and m.may(test, m.live, True):
        _bind(asked, case, subject)
        test = chain(True, [test, m.evaluate(f, case.guard)])

    def taken() -> None:
        if case.guard is None:
            _bind(asked, case, subject)
        m.execute(f, case.body)

    m.branch(f, test, node.subject, (taken, lambda: _cases(m, f, node, subject, others)))


def _bind(asked: Asked, case: ast.match_case, subject: RankValue) -> None:
    bound: dict[str, list[RankValue]] = {}
    for name, value in patterns.captured(asked, case.pattern, subject):
        bound.setdefault(name, []).append(value)
    for name, values in bound.items():
        asked.m.bind(asked.f, name, containers.any_of(values))
