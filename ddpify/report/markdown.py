"""The diff as a pull-request comment: a heading per file, the reasons under each hunk.

New files longer than a screen are named and not shown: the comment has a size limit,
and the pull request shows them anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpify.links import rule_page
from ddpify.outcome import Outcome
from ddpify.report.hunks import FileDiff, Hunk, file_diffs
from ddpify.report.text import followed, left_by_hand

_SCREEN = 40


def render(outcome: Outcome) -> str:
    """The whole comment."""
    diffs = file_diffs(outcome)
    lines = [_title(outcome, diffs)]
    for diff in diffs:
        lines += ["", *_file(diff)]
    by_hand = left_by_hand(outcome)
    if by_hand:
        lines += ["", "### Left to do by hand", ""]
        lines += [f"- `{left.place}` {left.text}" for left in by_hand]
    if outcome.notes:
        lines += ["", "### Notes", ""]
        lines += [f"- `{note.site}` {note.message}" for note in outcome.notes]
    if outcome.account is not None:
        lines += ["", followed(outcome.account)]
    return "\n".join(lines) + "\n"


def _title(outcome: Outcome, diffs: tuple[FileDiff, ...]) -> str:
    entries = ", ".join(f"`{entry}`" for entry in outcome.entries)
    if not diffs:
        return f"## ddpify: nothing to change in {entries or 'this project'}"
    files = "1 file" if len(diffs) == 1 else f"{len(diffs)} files"
    way = "Lightning's Trainer" if outcome.starts_itself else "torchrun"
    return f"## ddpify: {entries or 'this project'} under {way}, {files} to change"


def _file(diff: FileDiff) -> Iterator[str]:
    length = sum(len(hunk.lines) for hunk in diff.hunks)
    yield f"### `{diff.path}`{' (new)' if diff.is_new else ''}"
    for hunk in diff.hunks:
        yield ""
        if diff.is_new and length > _SCREEN:
            yield f"{length} lines, not shown here."
        else:
            yield from _fenced(hunk)
        yield ""
        yield from (f"- [**{rule}**]({rule_page(rule)}) {reason}" for rule, reason in hunk.reasons)


def _fenced(hunk: Hunk) -> Iterator[str]:
    runs = re.findall(r"`{3,}", "\n".join(hunk.lines))
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    yield f"{fence}diff"
    yield f"@@ {hunk.ranges} @@"
    yield from (line.rstrip("\r") for line in hunk.lines)
    yield fence
