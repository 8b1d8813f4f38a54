"""A rule's page: what it finds, why, and programs that are wrong and right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from ddpify.checking.measured import IN_CHECK, fixed_by, severities
from ddpify.names import CORE, METRICS
from ddpify.rules.base import Example, Rule

_HELPERS = (CORE, METRICS)


def page(rule: Rule) -> str:
    """One rule as Markdown."""
    return "\n".join(_page(rule))


def pages(rules: Sequence[Rule]) -> str:
    """All rules as one Markdown page, with a table of them."""
    rows = (
        f"| [{r.id}](#{r.id.lower()}-{r.name}) | {r.name} | {_severity(r)} | {_fixable(r)} |"
        for r in rules
    )
    head = ("# Rules", "", "| code | name | severity | fix |", "|---|---|---|---|", *rows, "")
    return "\n".join((*head, *(page(rule) for rule in rules)))


def index(rules: Sequence[Rule]) -> str:
    """A line for each rule: what happens, in a sentence."""
    rows = (f"| {r.id} | {r.name} | {_severity(r)} | {_sentence(r)} |" for r in rules)
    head = "| code | name | severity | what happens |\n|---|---|---|---|\n"
    return head + "".join(f"{row}\n" for row in rows)


def _sentence(rule: Rule) -> str:
    """The first of its reasons; a dot within brackets or a name ends none."""
    match = re.match(r"(?:\([^)]*\)|`[^`]*`|.)+?[.](?=\s+[A-Z`(]|$)", rule.why)
    return (match.group() if match else rule.why).replace("|", "\\|")


def render_json(rules: Sequence[Rule], listed: bool) -> str:
    """The same for programs: a list of rules, or one."""
    documents = [
        {
            "code": rule.id,
            "name": rule.name,
            "severity": rule.severity.value,
            "severity_in_check": list(IN_CHECK.get(rule.id, (rule.severity.value,))),
            "fix": _fixable(rule),
            "why": rule.why,
            "source": rule.source,
            "bad": [dict(example.files) for example in rule.bad],
            "good": [dict(example.files) for example in rule.good],
        }
        for rule in rules
    ]
    return json.dumps(documents if listed else documents[0], indent=2, ensure_ascii=False) + "\n"


def _page(rule: Rule) -> Iterator[str]:
    yield f"## {rule.id} {rule.name}"
    yield ""
    yield f"Severity: {_severity(rule)}. Fix: {_fixable(rule)}."
    yield ""
    yield f"{rule.why}"
    yield ""
    yield f"Source: {rule.source}"
    yield ""
    if rule.bad:
        yield from _example("Wrong", _telling(rule.bad))
    if rule.good:
        yield from _example("Right", _telling(rule.good))


def _telling(examples: Sequence[Example]) -> Example:
    """One as people write it by hand, if there is one, rather than one that ddpify migrated."""
    by_hand = (
        one
        for one in examples
        if not any(name in text for _, text in one.files for name in _HELPERS)
    )
    return next(by_hand, examples[0])


def _example(title: str, example: Example) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    for name, text in example.files:
        if len(example.files) > 1:
            yield f"`{name}`:"
            yield ""
        yield f"```{'python' if name.endswith('.py') else ''}"
        yield text.strip("\n")
        yield "```"
        yield ""


def _severity(rule: Rule) -> str:
    return severities(rule.id, rule.severity.value)


def _fixable(rule: Rule) -> str:
    return fixed_by(rule.id, rule.safe)
