"""A page for each rule, and the table of them, from the rules themselves."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from textwrap import indent

from ddpify.report.pair import NEAR, ShownPair, pair, unmarked
from ddpify.report.rule import fixable, sentence, severity, source
from ddpify.rules.base import Example, Rule

_FAMILIES = {
    "0": "The project and how it is started",
    "1": "Processes and devices",
    "2": "Data",
    "3": "The model and its wrapper",
    "4": "Gradients and steps",
    "5": "Files and output",
    "6": "Checkpoints",
    "7": "Metrics and decisions",
    "8": "Collectives",
    "9": "Frameworks and shards",
}
_REPOSITORIES = {
    "accelerate": "huggingface/accelerate",
    "lightning": "Lightning-AI/pytorch-lightning",
    "pytorch": "pytorch/pytorch",
    "transformers": "huggingface/transformers",
}
_ISSUE = re.compile(rf"\b({'|'.join(_REPOSITORIES)})( PR)?#(\d+)")
_URL = re.compile(r"(?<!\()https?://[^\s,;)\"'>]+[^\s,;)\"'>.]")


def index(rules: Sequence[Rule]) -> str:
    """All rules, by family."""
    lines = ["# Rules", "", "What `ddpify check` reports and `ddpify migrate` writes. "]
    lines[-1] += "`ddpify rule CODE` prints the same in a terminal."
    family = ""
    for rule in rules:
        if rule.id[3] != family:
            family = rule.id[3]
            lines += ["", f"## {_FAMILIES[family]}", "", "| code | what happens |", "|---|---|"]
        name = f"**{rule.name}** {_badge(rule)}"
        lines.append(f"| [{rule.id}]({rule.id}.md) | {name}<br>{sentence(rule)} |")
    return "\n".join(lines) + "\n"


def page(rule: Rule) -> str:
    """One rule: what, why, from where, and programs that have the bug and do not."""
    return "\n".join(_page(rule)) + "\n"


def _page(rule: Rule) -> Iterator[str]:
    yield from ("---", f"title: {rule.id} {rule.name}", "---", "")
    yield f"# {rule.id} {rule.name}"
    yield f"\n{_badge(rule)} Severity: {severity(rule)}. Fix: {fixable(rule)}."
    yield "[All rules](index.md)\n"
    yield f"{rule.why}\n"
    yield f"**Source:** {_source(rule)}\n"
    found = pair(rule)
    if found:
        yield from _shown(found)
    yield from ("## In your project", "")
    yield from ("```bash", f"ddpify check --select {rule.id}", f"ddpify rule {rule.id}", "```", "")
    yield f"Where it is right as it is: `# ddpify: ignore[{rule.id}]` behind the statement"
    yield "([more ways](../how-to/ci.md#what-is-right-as-it-is))."


def _badge(rule: Rule) -> str:
    return f'<span class="badge {rule.severity.value}">{rule.severity.value}</span>'


def _source(rule: Rule) -> str:
    text = _URL.sub(lambda url: f"<{url[0]}>", source(rule))
    return _ISSUE.sub(
        lambda one: f"[{one[0]}](https://github.com/{_REPOSITORIES[one[1]]}/issues/{one[3]})", text
    )


def _shown(found: ShownPair) -> Iterator[str]:
    if found.lines <= NEAR:
        yield from ("## Wrong and right", "", "```diff", *_difference(found), "```", "")
        yield from ('??? example "The whole programs"', "")
    else:
        yield from ('!!! example "Wrong and right"', "")
    for title, example in (("Wrong", found.wrong), ("Right", found.right)):
        yield f'    === "{title}"\n'
        yield indent("\n".join(_programs(example)), " " * 8)


def _difference(found: ShownPair) -> Iterator[str]:
    """What differs, file by file, as a reader of diffs knows it."""
    wrong, right = (dict(one.files) for one in (found.wrong, found.right))
    for name in dict.fromkeys((*wrong, *right)):
        old, new = (unmarked(files.get(name, "")).split("\n") for files in (wrong, right))
        lines = [*difflib.unified_diff(old, new, f"wrong/{name}", f"right/{name}", "", "", 4, "")]
        head = 0 if len(wrong) > 1 else 2
        yield from (line for line in lines[head:])


def _programs(example: Example) -> Iterator[str]:
    for name, text in example.files:
        lines = text.strip("\n").split("\n")
        marks = [str(at) for at, line in enumerate(lines, 1) if re.search(r"# DDP\d{3}\b", line)]
        spoken = "python" if name.endswith(".py") else "bash" if name.endswith(".sh") else "text"
        light = f' hl_lines="{" ".join(marks)}"' if marks else ""
        yield f'```{spoken} title="{name}"{light}'
        yield from (*lines, "```", "")
