"""A unified diff whose every hunk says which rule asked for it and why.

Rules and reasons stand in the hunk's heading, where patch tools allow any text: what is
piped into a file is a valid patch. On a terminal they get lines of their own, and copies of the
helpers, which nobody wants to read there, are folded to one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ddpify.outcome import Outcome
from ddpify.report.concise import plural
from ddpify.report.hunks import FileDiff, Hunk, file_diffs

_COLORS = {"+": "green", "-": "red"}


def render(outcome: Outcome, before: str = "", *, color: bool = False, folded: bool = False) -> str:
    """The whole diff; ``before`` leads from the current folder down to the project."""
    down = "" if Path(before).is_absolute() else before
    lines: list[str] = []
    for diff in file_diffs(outcome):
        if folded and diff.is_copy:
            lines.append(_folded(diff, down, color))
        else:
            lines += _file(diff, down, color)
    return "".join(f"{line}\n" for line in lines)


def _folded(diff: FileDiff, before: str, color: bool) -> str:
    """One line for a file: ``+ ddp_utils.py, 289 lines, not shown: --full``."""
    added, removed = diff.count("+"), diff.count("-")
    length = plural(added, "line") if diff.is_new else f"+{added} -{removed} lines"
    line = f"{'+' if diff.is_new else '~'} {before}{diff.path}, {length}, not shown: --full"
    return click.style(line, bold=True) if color else line


def _file(diff: FileDiff, before: str, color: bool) -> Iterator[str]:
    for header in diff.headers(before):
        yield click.style(header, bold=True) if color else header
    for hunk in diff.hunks:
        yield from _painted(hunk) if color else _plain(hunk)


def _plain(hunk: Hunk) -> Iterator[str]:
    why = "; ".join(f"{rule} {reason}" for rule, reason in hunk.reasons)
    yield f"@@ {hunk.ranges} @@ {' '.join(why.split())}".rstrip()
    yield from hunk.lines


def _painted(hunk: Hunk) -> Iterator[str]:
    yield click.style(f"@@ {hunk.ranges} @@", fg="cyan")
    for rule, reason in hunk.reasons:
        yield f"{click.style(rule, fg='magenta', bold=True)} {click.style(reason, italic=True)}"
    for line in hunk.lines:
        color = _COLORS.get(line[:1])
        yield click.style(line, fg=color) if color else line
