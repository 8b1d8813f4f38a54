"""The summary as a pull-request comment; everything a program printed is inert in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from ddpify.links import rule_page
from ddpify.verify.report import words
from ddpify.verify.verdict import Cause, Check, Verdict, Verification

_DETAILS = 12
_MARKS = {
    Verdict.PASS: "✅ pass",
    Verdict.FAIL: "❌ **fail**",
    Verdict.UNDECIDED: "❔ **undecided**",
    Verdict.SKIPPED: "⚪ skipped",
    Verdict.INFO: "🔹 info",
}
_HEADS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.UNDECIDED: "❔"}
_LONGEST = 400  # of one text: a comment has a size limit
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render(verification: Verification) -> str:
    """The whole comment."""
    lines = [f"## {_HEADS[words.settled(verification)]} {escaped(words.verdict(verification))}", ""]
    lines.append(" ".join(filter(None, (_compared(verification), words.limits(verification)))))
    lines += [""] if verification.stopped else []
    lines += [f"- **{escaped(reason)}**" for reason in words.reasons(verification)]
    if again := words.again(verification):
        lines += ["", f"{escaped(words.to_decide(verification))}: {code(again)}"]
    lines += ["", "| | Check | Measured |", "|---|---|---|"]
    lines += [_row(check) for check in verification.checks]
    for number, cause in enumerate(verification.causes):
        lines += ["", *_cause(cause, number)]
    for check in filter(words.wanting, verification.checks):
        lines += _details(check)
    lines += ["", *_setup(verification)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: one line, no markup, no link, nobody mentioned."""
    plain = words.printable(text)
    short = plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"
    return _SPECIAL.sub(r"\\\1", short).replace("@", "@\u2060").replace("://", ":\u2060//")


def code(text: str) -> str:
    """A code span that may hold backticks; never in a table, where a pipe would end the cell."""
    plain = words.printable(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", plain)), default=0))
    space = " " if plain[:1] == "`" or plain[-1:] == "`" else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _compared(verification: Verification) -> str:
    return f"{escaped(words.compared(verification))}."


def _row(check: Check) -> str:
    return f"| {_MARKS[check.verdict]} | {escaped(check.title)} | {escaped(check.measured)} |"


def _cause(cause: Cause, number: int) -> Iterator[str]:
    label = "Or" if number else "Likely cause:"
    yield f"### {label} [{escaped(cause.rule)}]({rule_page(cause.rule)}) {escaped(cause.title)}"
    yield ""
    yield f"**Measured:** {escaped(cause.evidence)}"
    yield ""
    yield escaped(cause.why)
    if cause.sites:
        yield ""
        yield from (f"- {code(site)}" for site in cause.sites)


def _details(check: Check) -> Iterator[str]:
    if not check.details:
        return
    yield from ("", "<details>", f"<summary>{_html(check.title)}</summary>", "")
    yield from (f"- {escaped(detail)}" for detail in check.details[:_DETAILS])
    if len(check.details) > _DETAILS:
        yield f"- … and {words.plural(len(check.details) - _DETAILS, 'more line')}"
    yield from ("", "</details>")


def _setup(verification: Verification) -> Iterator[str]:
    yield from ("<details>", "<summary>What was run</summary>", "")
    for name, command in words.commands(verification):
        yield f"- {name}: {code(command)}"
    yield from (f"- {escaped(line)}" for line in verification.setup)
    yield from ("", "</details>")


def _html(text: str) -> str:
    """Within an HTML block, where Markdown has no say but GitHub still looks for names."""
    return escape(words.printable(text), quote=False).replace("@", "@\u2060")
