"""Plain lines for people: findings as linters print them, and what a migration did.

Places are written as an editor can follow them from the current folder.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ddpify.outcome import Outcome, Refusal
from ddpify.rules.base import Finding, Severity

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@dataclass(frozen=True)
class Left:
    """One thing that ddpify leaves to the user: where, and what."""

    place: str
    text: str


def prefix(root: Path) -> str:
    """What leads from the current folder to ``root``: down, or from the top."""
    way = os.path.relpath(root.resolve(), Path.cwd())
    if way == ".":
        return ""
    return f"{root.resolve() if way.startswith('..') else Path(way)}/"


def refusal(one: Refusal) -> str:
    """One line for standard error."""
    place = f"{one.site}: " if one.site and not one.message.startswith(one.site.path) else ""
    return f"ddpify: {place}{one.message}"


def findings(outcome: Outcome, before: str = "", *, color: bool = False) -> str:
    """``path:line:column: CODE message`` for each, then the counts."""
    lines: list[str] = []
    for found in sorted(outcome.findings, key=lambda found: (found.site, found.rule)):
        lines += _finding(found, before, color)
    lines += [f"{before}{note.site}: note: {note.message}" for note in outcome.notes]
    return "\n".join([*lines, _counts(outcome.findings)]) + "\n"


def _finding(found: Finding, before: str, color: bool) -> Iterator[str]:
    span = found.site.span
    rule = click.style(found.rule, fg=_COLORS[found.severity], bold=True) if color else found.rule
    yield f"{before}{found.site.path}:{span.line}:{span.column + 1}: {rule} {found.message}"
    for site, why in found.because:
        yield f"    {before}{site}: {why}"
    if found.advice:
        yield f"    {found.advice}"


def _counts(found: Sequence[Finding]) -> str:
    if not found:
        return "No findings."
    by_severity = Counter(one.severity for one in found)
    parts = (_plural(by_severity[kind], kind.value) for kind in Severity if by_severity[kind])
    files = _plural(len({one.site.path for one in found}), "file")
    fixable = sum(bool(one.fix) for one in found)
    return (
        f"{_plural(len(found), 'finding')} ({', '.join(parts)}) in {files}; "
        f"ddpify migrate fixes {fixable}."
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def left_by_hand(outcome: Outcome, before: str = "") -> tuple[Left, ...]:
    """Findings that nothing fixes, and fixes that got in each other's way."""
    advice = (
        Left(f"{before}{found.site}", f"{found.rule} {found.message}. {found.advice}".rstrip(". "))
        for found in outcome.findings
        if not found.fix
    )
    clashes = (
        Left(f"{before}{clash.site}", f"{', '.join(clash.rules)} {clash.message}")
        for clash in outcome.clashes
    )
    return (*advice, *clashes)


def commands(outcome: Outcome, before: str = "") -> tuple[str, ...]:
    """The line that starts each entry on every GPU of this machine."""
    start = "torchrun --standalone --nproc_per_node=gpu"
    return tuple(f"{start} {before}{entry}" for entry in outcome.entries)


def summary(outcome: Outcome, before: str = "", written: Sequence[Path] | None = None) -> str:
    """What was written (None: nothing was meant to be), how to run it, what is left to do."""
    lines: list[str] = []
    if written is not None:
        lines += _section(f"Wrote {_plural(len(written), 'file')}", map(_shown, written))
        lines += _section("Run it (arguments as before)", commands(outcome, before))
    by_hand = left_by_hand(outcome, before)
    lines += _section("Left to do by hand", (f"{left.place}: {left.text}" for left in by_hand))
    notes = (f"{before}{note.site}: {note.message}" for note in outcome.notes)
    lines += _section("Notes", notes)
    return "".join(f"{line}\n" for line in lines)


def _section(title: str, items: Iterator[str] | Sequence[str]) -> Iterator[str]:
    rows = [f"  {item}" for item in items]
    if rows:
        yield f"{title}:"
        yield from rows


def _shown(path: Path) -> str:
    way = os.path.relpath(path)
    return str(path) if way.startswith("..") else way
