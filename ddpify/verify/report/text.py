"""The terminal summary: what was compared, a line for each check, the likely cause."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import click

from ddpify.verify.report import words
from ddpify.verify.verdict import Cause, Check, Verdict, Verification

WIDTH: Final = 100
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


def render(verification: Verification, *, color: bool, width: int = WIDTH) -> str:
    """The whole summary, lines of at most ``width`` columns where words allow it."""
    lines = _Summary(verification, color, width).lines()
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class _Summary:
    verification: Verification
    color: bool
    width: int
    said: set[str] = field(default_factory=set)  # details: what holds for several is said once

    def lines(self) -> Iterator[str]:
        yield from self._head()
        if self.verification.stopped:
            yield from ("", *self._stopped())
        yield ""
        yield from self._checks()
        for number, cause in enumerate(self.verification.causes):
            yield from ("", *self._cause(cause, number))
        yield ""
        yield from self._closing()

    def _styled(self, line: str, color: str | None = None) -> str:
        return click.style(line, fg=color, bold=True) if self.color else line

    def _head(self) -> Iterator[str]:
        for line in self._wrapped(f"ddpify verify {words.compared(self.verification)}", ""):
            yield self._styled(line)
        for name, command in words.commands(self.verification):
            yield from self._labelled(name, command)
        for number, line in enumerate(self.verification.setup):
            yield from self._labelled("" if number else "setup", words.printable(line))

    def _labelled(self, label: str, text: str) -> Iterator[str]:
        first = f"  {label:<11}"
        return self._wrapped(text, first, " " * len(first))

    def _stopped(self) -> Iterator[str]:
        """Before all else: the rest of such a report is about what did not happen."""
        for reason in words.reasons(self.verification):
            for line in self._wrapped(reason, "", "  "):
                yield self._styled(line, _COLORS[Verdict.FAIL])

    def _checks(self) -> Iterator[str]:
        titles = (len(words.printable(one.title)) for one in self.verification.checks)
        beside = min(max(titles, default=0), _TITLE)
        skipped = [one for one in self.verification.checks if one.verdict is Verdict.SKIPPED]
        folded = skipped if self.verification.stopped else []  # all for the same reason
        for check in self.verification.checks:
            if check not in folded:
                yield from self._check(check, beside)
        if folded:
            more = words.plural(len(folded), "check")
            folds = Check("", more, Verdict.SKIPPED, "nothing to compare where ranks do not end")
            yield from self._check(folds, beside)

    def _check(self, check: Check, beside: int) -> Iterator[str]:
        mark, measured = _MARKS[check.verdict], words.printable(check.measured)
        line = f"{mark}  {words.printable(check.title)}"
        whole = f"{line:<{beside + 6}}  {measured}".rstrip()
        fits = len(whole) <= self.width and len(line) <= beside + 6
        first = whole if fits else line
        shown = click.style(mark, fg=_COLORS[check.verdict], bold=words.wanting(check))
        yield (shown if self.color else mark) + first[len(mark) :]
        if not fits:
            yield from self._wrapped(measured, _INDENT, _INDENT)
        if words.wanting(check):
            yield from self._details(check.details)

    def _details(self, details: tuple[str, ...]) -> Iterator[str]:
        new = [detail for detail in details if detail not in self.said]
        self.said.update(new)
        for detail in new[:_DETAILS]:
            yield from self._wrapped(words.printable(detail), _INDENT, f"{_INDENT}  ")
        if len(new) > _DETAILS:
            yield f"{_INDENT}... and {words.plural(len(new) - _DETAILS, 'more line')}"

    def _cause(self, cause: Cause, number: int) -> Iterator[str]:
        label = "or" if number else "Likely cause:"
        head = f"{label} {cause.rule} {words.printable(cause.title)}"
        for line in self._wrapped(head, "", "  "):
            yield self._styled(line, "magenta")
        yield from self._wrapped(words.printable(cause.evidence), "  measured: ", " " * 12)
        yield from self._wrapped(words.printable(cause.why), "  why: ", " " * 7)
        for site in cause.sites:
            yield from self._wrapped(words.printable(site), "  ", "      ")

    def _closing(self) -> Iterator[str]:
        verification = self.verification
        verdict = words.settled(verification)
        for line in self._wrapped(words.verdict(verification), ""):
            yield self._styled(line, _COLORS[verdict])
        for reason in words.reasons(verification):
            yield from self._wrapped(reason, "  ", "    ")
        limits = words.limits(verification)
        if limits:
            yield from self._wrapped(limits, "")
        if again := words.again(verification):
            yield from (f"{words.to_decide(verification)}:", f"  {again}")
        if verification.kept:
            yield f"Both copies and what was recorded: {words.printable(verification.kept)}"

    def _wrapped(self, text: str, first: str, rest: str = "") -> Iterator[str]:
        """Paths and commands stay whole: they are copied from here."""
        if not text:
            yield first.rstrip()
            return
        yield from textwrap.wrap(
            text,
            self.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
