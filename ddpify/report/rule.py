"""A rule's page: what it finds, why, and programs that are wrong and right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from ddpify.checking.measured import IN_CHECK, fixed_by, severities
from ddpify.links import rule_page
from ddpify.report.pair import pair
from ddpify.rules.base import Example, Rule

_OWN = re.compile(r"(BUGS|PATTERNS|CONTRACT|seed \d)")  # notes that ddpify was written from


def page(rule: Rule) -> str:
    """One rule as Markdown."""
    return "\n".join(_page(rule))


def pages(rules: Sequence[Rule]) -> str:
    """All rules as one Markdown page, with a table of them."""
    rows = (
        f"| [{r.id}](#{r.id.lower()}-{r.name}) | {r.name} | {severity(r)} | {fixable(r)} |"
        for r in rules
    )
    head = ("# Rules", "", "| code | name | severity | fix |", "|---|---|---|---|", *rows, "")
    return "\n".join((*head, *(page(rule) for rule in rules)))


def sentence(rule: Rule) -> str:
    """The first of its reasons; a dot within brackets or a name ends none."""
    match = re.match(r"(?:\([^)]*\)|`[^`]*`|.)+?[.](?=\s+[A-Z`(]|$)", rule.why)
    return (match.group() if match else rule.why).replace("|", "\\|")


def source(rule: Rule) -> str:
    """What can be read elsewhere of what it rests on."""
    parts = [part for part in rule.source.split("; ") if not _OWN.match(part)]
    return "; ".join(parts) or "the catalogue of bugs that ddpify was written from"


def render_json(rules: Sequence[Rule], listed: bool) -> str:
    """The same for programs: a list of rules, or one.

    ``schema`` grows when a key changes its meaning or goes.
    """
    documents = [
        {
            "schema": 1,
            "code": rule.id,
            "name": rule.name,
            "severity": rule.severity.value,
            "severity_in_check": list(IN_CHECK.get(rule.id, (rule.severity.value,))),
            "fix": fixable(rule),
            "why": rule.why,
            "source": source(rule),
            "bad": [dict(example.files) for example in rule.bad],
            "good": [dict(example.files) for example in rule.good],
        }
        for rule in rules
    ]
    return json.dumps(documents if listed else documents[0], indent=2, ensure_ascii=False) + "\n"


def _page(rule: Rule) -> Iterator[str]:
    yield f"## {rule.id} {rule.name}"
    yield ""
    yield f"Severity: {severity(rule)}. Fix: {fixable(rule)}."
    yield ""
    yield f"{rule.why}"
    yield ""
    yield f"Source: {source(rule)}"
    yield ""
    yield f"Page: {rule_page(rule.id)}"
    yield ""
    shown = pair(rule)
    if shown:
        yield from _example("Wrong", shown.wrong)
        yield from _example("Right", shown.right)


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


def severity(rule: Rule) -> str:
    """How bad it is, in migrate and in check."""
    return severities(rule.id, rule.severity.value)


def fixable(rule: Rule) -> str:
    """What makes its fix."""
    return fixed_by(rule.id, rule.safe)
