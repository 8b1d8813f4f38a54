"""Which changes are to be made, one after the other: what belongs together is one choice."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ddpify.plan import Change
from ddpify.rules.base import Edit, Finding


@dataclass(frozen=True)
class Proposal:
    """Findings whose fixes are made together or not at all, the one that is asked for first."""

    findings: tuple[Finding, ...]
    render: Callable[[Sequence[Finding]], tuple[Change, ...]]

    @property
    def rule(self) -> str:
        """The rule that it is asked under."""
        return self.findings[0].rule

    @property
    def changes(self) -> tuple[Change, ...]:
        """What would be changed if nothing else was."""
        return self.render(self.findings)


def choices(
    findings: Sequence[Finding], render: Callable[[Sequence[Finding]], tuple[Change, ...]]
) -> tuple[Proposal, ...]:
    """All that have a fix, by rule and place. A fix that uses a name which another one binds, or
    that makes the very same edit, goes with it."""
    groups: list[list[Finding]] = []
    for one in sorted((f for f in findings if f.fix), key=lambda f: (f.rule, f.site)):
        near = [group for group in groups if any(_belong(one, other) for other in group)]
        merged = [each for group in near for each in group]
        groups = [group for group in groups if group not in near]
        groups.append(sorted([*merged, one], key=lambda f: (f.rule, f.site)))
    ordered = sorted(groups, key=lambda group: (group[0].rule, group[0].site))
    return tuple(Proposal(tuple(group), render) for group in ordered)


def _belong(one: Finding, other: Finding) -> bool:
    if set(one.fix) & set(other.fix):
        return True
    return _needs(one, other) or _needs(other, one)


def _needs(one: Finding, other: Finding) -> bool:
    """Whether a fix uses a name that another one's statements bind in the same file."""
    bound = {(edit.site.path, name) for edit in other.fix for name in _names(edit, ast.Store)}
    used = {(edit.site.path, name) for edit in one.fix for name in _names(edit, ast.Load)}
    return bool(bound & used)


def _names(edit: Edit, context: type[ast.expr_context]) -> Iterator[str]:
    try:
        nodes = ast.walk(ast.parse(edit.code.replace("{}", "None")))
    except SyntaxError:  # the head of a block, a launcher's line
        return
    yield from (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, context))
