"""The terminal summary: what was compared, a line for each check, the likely cause."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from ddpify.verify.report import words
from ddpify.verify.verdict import Cause, Check, Verdict, Verification

WIDTH = 100
_DETAILS = 6
_TITLE = 48  # columns; a longer one has its measurement below it
_INDENT = " " * 8
_MARKS = {
    Verdict.PASS: "pass",
    Verdict.FAIL: "FAIL",
    Verdict.UNDECIDED: "????",
    Verdict.SKIPPED: "skip",
    Verdict.INFO: "info",
}
_COLORS = {
    Verdict.PASS: "green",
    Verdict.FAIL: "red",
    Verdict.UNDECIDED: "yellow",
    Verdict.SKIPPED: "bright_black",
    Verdict.INFO: "cyan",
}


def render(verification: Verification, *, color: bool) -> str:
    """The whole summary, lines of at most ``WIDTH`` columns where words allow it."""
    lines = list(_head(verification, color))
    lines += ["", *_checks(verification.checks, color)]
    for number, cause in enumerate(verification.causes):
        lines += ["", *_cause(cause, number, color)]
    lines += ["", *_closing(verification, color)]
    return "".join(f"{line}\n" for line in lines)


def _head(verification: Verification, color: bool) -> Iterator[str]:
    for line in _wrapped(f"ddpify verify {words.compared(verification)}", ""):
        yield click.style(line, bold=True) if color else line
    for name, command in words.commands(verification):
        yield from _labelled(name, command)
    for number, line in enumerate(verification.setup):
        yield from _labelled("" if number else "setup", words.printable(line))


def _labelled(label: str, text: str) -> Iterator[str]:
    first = f"  {label:<11}"
    return _wrapped(text, first, " " * len(first))


def _checks(checks: tuple[Check, ...], color: bool) -> Iterator[str]:
    width = min(max((len(words.printable(one.title)) for one in checks), default=0), _TITLE)
    for check in checks:
        yield from _check(check, width, color)


def _check(check: Check, width: int, color: bool) -> Iterator[str]:
    mark, measured = _MARKS[check.verdict], words.printable(check.measured)
    line = f"{mark}  {words.printable(check.title)}"
    beside = f"{line:<{width + 6}}  {measured}".rstrip()
    fits = len(beside) <= WIDTH and len(line) <= width + 6
    first = beside if fits else line
    shown = click.style(mark, fg=_COLORS[check.verdict], bold=words.wanting(check))
    yield (shown if color else mark) + first[len(mark) :]
    if not fits:
        yield from _wrapped(measured, _INDENT, _INDENT)
    if words.wanting(check):
        yield from _details(check.details)


def _details(details: tuple[str, ...]) -> Iterator[str]:
    for detail in details[:_DETAILS]:
        yield from _wrapped(words.printable(detail), _INDENT, f"{_INDENT}  ")
    if len(details) > _DETAILS:
        yield f"{_INDENT}... and {words.plural(len(details) - _DETAILS, 'more line')}"


def _cause(cause: Cause, number: int, color: bool) -> Iterator[str]:
    label = "or" if number else "Likely cause:"
    head = f"{label} {cause.rule} {words.printable(cause.title)}"
    for line in _wrapped(head, "", "  "):
        yield click.style(line, fg="magenta", bold=True) if color else line
    yield from _wrapped(words.printable(cause.evidence), "  measured: ", " " * 12)
    yield from _wrapped(words.printable(cause.why), "  why: ", " " * 7)
    for site in cause.sites:
        yield from _wrapped(words.printable(site), "  ", "      ")


def _closing(verification: Verification, color: bool) -> Iterator[str]:
    verdict = words.settled(verification)
    for line in _wrapped(words.verdict(verification), ""):
        yield click.style(line, fg=_COLORS[verdict], bold=True) if color else line
    limits = words.limits(verification)
    if limits:
        yield limits
    if verification.kept:
        yield f"Both copies and what was recorded: {words.printable(verification.kept)}"


def _wrapped(text: str, first: str, rest: str = "") -> Iterator[str]:
    """Paths and commands stay whole: they are copied from here."""
    if not text:
        yield first.rstrip()
        return
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
