"""A rule's page: what it finds, why, and programs that are wrong and right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from ddpify.links import rule_page
from ddpify.report.pair import pair
from ddpify.rules.base import Example, Rule


def page(rule: Rule) -> str:
    """One rule as Markdown."""
    return "\n".join(_page(rule))


def pages(rules: Sequence[Rule]) -> str:
    """All rules as one Markdown page, with a table of them."""
    rows = (
        f"| [{r.id}](#{r.id.lower()}-{r.name}) | {r.name} | {r.severity.value} | {fixable(r)} |"
        for r in rules
    )
    head = ("# Rules", "", "| code | name | severity | fix |", "|---|---|---|---|", *rows, "")
    return "\n".join((*head, *(page(rule) for rule in rules)))


def sentence(rule: Rule) -> str:
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
            "fix": fixable(rule),
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
    yield f"Severity: {rule.severity.value}; each finding has its own. Fix: {fixable(rule)}."
    yield ""
    yield f"{rule.why}"
    yield ""
    yield f"Source: {rule.source}"
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


def fixable(rule: Rule) -> str:
    """What a fix of this rule may do."""
    if not rule.fixes:
        return "by hand"
    return "safe, where there is one" if rule.safe else "unsafe, where there is one"
