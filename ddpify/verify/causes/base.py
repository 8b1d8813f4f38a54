"""What the diagnosis is made from, and how a cause is worded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from ddpify.rules.base import Finding, Rule
from ddpify.rules.registry import all_rules
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.verdict import Cause, Check, Verdict

# What is measured has one name, and ``check``, which sees the program, tells apart why: where it
# finds one of these rules broken, and not the first, the cause has its name.
ALSO: Final = {
    "DDP111": ("DDP314",),
    "DDP202": ("DDP208",),
    "DDP203": ("DDP957",),
    "DDP205": ("DDP209",),
    "DDP301": ("DDP312",),
    "DDP304": ("DDP804",),
    "DDP404": ("DDP801", "DDP802", "DDP803", "DDP804", "DDP806", "DDP807", "DDP813"),
    "DDP405": ("DDP412",),
    "DDP603": ("DDP602", "DDP815"),
    "DDP701": ("DDP951", "DDP955"),
    "DDP702": ("DDP951", "DDP955"),
    "DDP703": ("DDP704", "DDP803"),
}
# Ranks part: whatever ``check`` says of the collective at the place that was measured is its name.
_PARTING: Final = ("DDP304", "DDP404", "DDP703")
_OF_COLLECTIVES: Final = "DDP8"


@dataclass(frozen=True)
class Case:
    """The comparison and how its checks came out."""

    c: Comparison
    checks: tuple[Check, ...]

    def failed(self, name: str) -> bool:
        return any(check.name == name and check.verdict is Verdict.FAIL for check in self.checks)

    def found(self, rule: str) -> bool:
        """Whether ``check`` itself finds this rule broken in the distributed program."""
        return bool(self._of((rule, *ALSO.get(rule, ()))))

    def cause(self, rule: str, evidence: str) -> Cause:
        """Of what was measured, under the name that ``check`` has for it."""
        codes = self._codes(rule, evidence)
        sites = self._of(codes)
        rule = self._named(codes, evidence)
        known = self._rules[rule]
        title = known.name.replace("-", " ").capitalize()
        return Cause(rule, title, known.why, evidence, sites)

    def _codes(self, rule: str, evidence: str) -> tuple[str, ...]:
        """What ``check`` may call it, the name of what was measured first."""
        codes = (rule, *ALSO.get(rule, ()))
        if rule not in _PARTING:
            return codes
        there = (one.rule for one in self.c.evidence.findings if _is_at(one, evidence))
        more = (code for code in there if code.startswith(_OF_COLLECTIVES))
        return tuple(dict.fromkeys((*codes, *more)))

    def _named(self, codes: tuple[str, ...], evidence: str) -> str:
        """A finding at a place that the evidence names comes first."""
        found = [one for one in self.c.evidence.findings if one.rule in codes]
        placed = [one for one in found if _is_at(one, evidence)]
        return min((one.rule for one in placed or found), key=codes.index, default=codes[0])

    def _of(self, codes: tuple[str, ...]) -> tuple[str, ...]:
        places = (
            f"{one.site.path}:{one.site.span.line}: {one.message}"
            for one in self.c.evidence.findings
            if one.rule in codes
        )
        return tuple(dict.fromkeys(places))

    def preferred(self, *rules: str) -> str:
        """The first that ``check`` finds, else the first: for readings nothing else tells apart."""
        return next((rule for rule in rules if self.found(rule)), rules[0])

    @cached_property
    def _rules(self) -> dict[str, Rule]:
        return {rule.id: rule for rule in all_rules()}


def _is_at(one: Finding, evidence: str) -> bool:
    return re.search(rf"{re.escape(one.site.path)}:{one.site.span.line}\b", evidence) is not None


# Yields what it recognises, the likeliest first, and nothing where it recognises nothing.
Reader: TypeAlias = Callable[[Case], Iterator[Cause]]
