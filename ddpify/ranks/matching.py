"""``match``, and assignments to several targets, as two ranks run them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddpify.python import patterns
from ddpify.ranks import containers
from ddpify.ranks.frames import Frame
from ddpify.ranks.logic import chain
from ddpify.ranks.model import ALL, Symbol, Value
from ddpify.ranks.operations import compare
from ddpify.ranks.protocol import Machine
from ddpify.ranks.values import constant, key_of, symbol, text


@dataclass(frozen=True)
class Asked:
    """Knowledge of a value's parts and of a condition, in a frame."""

    m: Machine
    f: Frame

    def elements(self, value: Value) -> Sequence[Value] | None:
        """Those of a list; a list that grew in a loop may have more of them."""
        return containers.elements(value)

    def element(self, value: Value, number: int) -> Value:
        """Any of those that are known, or a part of the value."""
        if value.items and any(item.things for item in value.items):
            return containers.any_of(value.items)
        part = symbol(f"{getattr(value.atoms[0], 'key', '?')}[{number}]", value)
        if value.known and isinstance(value.atoms[0], tuple) and self.m.live == ALL:
            atoms = tuple(a[number] if number < len(a) else None for a in value.atoms)
            return replace(part, atoms=(atoms[0], atoms[1]))
        return part

    def gathered(self, value: Value, elements: Sequence[Value] | None) -> Value:
        """The value with these elements."""
        known = value.items if elements is None else tuple(elements)
        return replace(symbol(f"{key_of(value)}[:]", value), items=known)

    def entry(self, value: Value, key: ast.expr) -> Value:
        """An entry of a dict."""
        index = self.m.evaluate(self.f, key)
        found = containers.entry(value, index)
        return found or symbol(f"{key_of(value)}[{key_of(index)}]", value)

    def others(self, value: Value, keys: Sequence[ast.expr]) -> Value:
        """The dict without some entries."""
        for key in keys:
            value = containers.without(value, self.m.evaluate(self.f, key), None)
        return replace(value)

    def attribute(self, value: Value, name: str, pattern: ast.pattern) -> Value:
        """An attribute of an object."""
        node = ast.Attribute(ast.Name("subject", ast.Load()), name, ast.Load())
        ast.copy_location(node, pattern)
        return self.m.attribute(self.f, value, name, node)

    def places(self, cls: ast.expr) -> Sequence[str]:
        """``__match_args__``, or the fields in their order."""
        for thing in self.m.evaluate(self.f, cls).things:
            return self.m.places(thing)
        return ()

    def equals(self, value: Value, other: ast.expr) -> Value:
        """``value == other``."""
        return compare("Eq", value, self.m.evaluate(self.f, other))

    def is_constant(self, value: Value, constant_: object) -> Value:
        """``value is None``."""
        return compare("Is", value, constant(constant_))

    def all_of(self, tests: Sequence[Value]) -> Value:
        """``and``."""
        return chain(True, list(tests)) if tests else self.said(True)

    def any_of(self, tests: Sequence[Value]) -> Value:
        """``or``."""
        return chain(False, list(tests))

    def unknown(self, value: Value, pattern: ast.pattern) -> Value:
        """A condition that has its own name."""
        one = Symbol(f"{text(value.atoms[0])}:{ast.unparse(pattern)}")
        return Value((one, one), (), frozenset(), value.origins)

    def said(self, answer: bool) -> Value:
        """A known one."""
        return constant(answer)


def match(m: Machine, f: Frame, node: ast.Match) -> None:
    """The first case whose pattern matches, and whose condition holds."""
    _cases(m, f, node, m.evaluate(f, node.subject), node.cases)


def _cases(
    m: Machine, f: Frame, node: ast.Match, subject: Value, cases: list[ast.match_case]
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


def _bind(asked: Asked, case: ast.match_case, subject: Value) -> None:
    bound: dict[str, list[Value]] = {}
    for name, value in patterns.captured(asked, case.pattern, subject):
        bound.setdefault(name, []).append(value)
    for name, values in bound.items():
        asked.m.bind(asked.f, name, containers.any_of(values))
