"""What the diagnosis is made from, and how a cause is worded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ddpify.rules.base import Rule
from ddpify.rules.registry import all_rules
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.verdict import Cause, Check, Verdict


@dataclass(frozen=True)
class Case:
    """The comparison and how its checks came out."""

    c: Comparison
    checks: tuple[Check, ...]

    def failed(self, name: str) -> bool:
        return any(check.name == name and check.verdict is Verdict.FAIL for check in self.checks)

    def found(self, rule: str) -> bool:
        """Whether ``check`` itself finds this rule broken in the distributed program."""
        return any(finding.rule == rule for finding in self.c.evidence.findings)

    def cause(self, rule: str, evidence: str) -> Cause:
        known = self._rules[rule]
        title = known.name.replace("-", " ").capitalize()
        sites = tuple(
            f"{finding.site.path}:{finding.site.span.line}: {finding.message}"
            for finding in self.c.evidence.findings
            if finding.rule == rule
        )
        return Cause(rule, title, known.why, evidence, sites)

    def preferred(self, *rules: str) -> str:
        """The first that ``check`` finds, else the first: for readings nothing else tells apart."""
        return next((rule for rule in rules if self.found(rule)), rules[0])

    @cached_property
    def _rules(self) -> dict[str, Rule]:
        return {rule.id: rule for rule in all_rules()}


# Yields what it recognises, the likeliest first, and nothing where it recognises nothing.
Reader: TypeAlias = Callable[[Case], Iterator[Cause]]
