"""A changed file as diff hunks, each with the edits that made it.

The reviewer asks "why this line?"; edits know where they stand in the original, hunks
too, so the answer is a matter of line ranges. Imports are the exception: the rewriter
places them, and they belong to the edits that needed the name.
"""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from dataclasses import dataclass

from ddpify.names import HEADER_PREFIX
from ddpify.outcome import Outcome
from ddpify.plan import Change, PlannedEdit
from ddpify.rules.base import Edit, How

Opcode = tuple[str, int, int, int, int]


@dataclass(frozen=True)
class Hunk:
    """Neighbouring changed lines: ``ranges`` is ``-1,3 +1,4``, ``lines`` carry their mark.

    ``importing`` are edits made elsewhere whose helpers are imported here.
    """

    ranges: str
    lines: tuple[str, ...]
    edits: tuple[PlannedEdit, ...]
    importing: tuple[PlannedEdit, ...] = ()

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Rule id and reason of every edit in this hunk, each pair once."""
        own = sorted({(planned.rule, planned.reason) for planned in self.edits})
        rules = sorted({planned.rule for planned in self.importing})
        if rules:
            own.insert(0, (rules[0], f"imports the helpers of {', '.join(rules)}"))
        return tuple(own)


@dataclass(frozen=True)
class FileDiff:
    """One file's hunks. ``is_copy``: it is a copy of the helpers, which nobody has to read."""

    path: str
    is_new: bool
    hunks: tuple[Hunk, ...]
    is_copy: bool = False

    def count(self, mark: str) -> int:
        """How many lines are added ("+") or removed ("-")."""
        return sum(line.startswith(mark) for hunk in self.hunks for line in hunk.lines)

    def headers(self, before: str = "") -> tuple[str, str]:
        """The two lines that name the file in a unified diff."""
        old = "/dev/null" if self.is_new else f"a/{before}{self.path}"
        return f"--- {old}", f"+++ b/{before}{self.path}"


def file_diffs(outcome: Outcome) -> tuple[FileDiff, ...]:
    """The files this outcome changes, in its order; copies of the helpers come last."""
    found = (file_diff(change) for change in outcome.changes if change.before != change.after)
    return tuple(sorted(found, key=lambda diff: diff.is_copy))


def file_diff(change: Change) -> FileDiff:
    """Compare both versions and hand every edit to the hunks it made."""
    old = _lines(change.before or b"")
    new = _lines(change.after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    groups = list(matcher.get_grouped_opcodes(3))
    importing = [_needing_imports(change.edits, group, new) for group in groups]
    owners = _owners(change.edits, groups, importing)
    hunks = (
        Hunk(_ranges(group), _marked(group, old, new), edits, imports)
        for group, edits, imports in zip(groups, owners, importing, strict=True)
    )
    is_copy = change.after.startswith(HEADER_PREFIX.encode())
    return FileDiff(change.path, change.before is None, tuple(hunks), is_copy)


def _lines(raw: bytes) -> list[str]:
    """Lines with their ends; only ``\\n`` ends a line, as for patch tools."""
    parts = _decoded(raw).split("\n")
    return [f"{part}\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])


def _decoded(raw: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return raw.decode("utf-8" if encoding == "utf-8-sig" else encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return raw.decode("latin-1")


def _ranges(group: list[Opcode]) -> str:
    first, last = group[0], group[-1]
    return f"-{_range(first[1], last[2])} +{_range(first[3], last[4])}"


def _range(start: int, stop: int) -> str:
    """A range as unified diffs write it: an empty one names the line before it."""
    length = stop - start
    begin = start + 1 if length else start
    return str(begin) if length == 1 else f"{begin},{length}"


def _marked(group: list[Opcode], old: list[str], new: list[str]) -> tuple[str, ...]:
    lines: list[str] = []
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [f" {line}" for line in old[i1:i2]]
        else:
            lines += [f"-{line}" for line in old[i1:i2]]
            lines += [f"+{line}" for line in new[j1:j2]]
    return tuple(part for line in lines for part in _with_end(line))


def _with_end(line: str) -> tuple[str, ...]:
    if line.endswith("\n"):
        return (line[:-1],)
    return line, "\\ No newline at end of file"


def _owners(
    edits: tuple[PlannedEdit, ...],
    groups: list[list[Opcode]],
    importing: list[tuple[PlannedEdit, ...]],
) -> list[tuple[PlannedEdit, ...]]:
    """For each group its edits: nobody's hunk and an edit without a hunk do not occur."""
    owned: list[list[PlannedEdit]] = [[] for _ in groups]
    for planned in edits:
        distances = [_distance(planned.edit, group) for group in groups]
        closest = min(distances, default=0)
        for bucket, distance in zip(owned, distances, strict=True):
            if distance == closest:
                bucket.append(planned)
    for bucket, group, imports in zip(owned, groups, importing, strict=True):
        if edits and not bucket and not imports:
            bucket.append(min(edits, key=lambda planned: _distance(planned.edit, group)))
    return [tuple(dict.fromkeys(bucket)) for bucket in owned]


def _needing_imports(
    edits: tuple[PlannedEdit, ...], group: list[Opcode], new: list[str]
) -> tuple[PlannedEdit, ...]:
    added = [line for tag, _, _, j1, j2 in group if tag != "equal" for line in new[j1:j2]]
    if not any(re.match(r"\s*(from|import)\s", line) for line in added):
        return ()
    words = set(re.findall(r"\w+", "".join(added)))
    needing = (p for p in edits if any(name.name in words for name in p.edit.imports))
    return tuple(needing)


def _distance(edit: Edit, group: list[Opcode]) -> int:
    """Lines between where the edit stands in the original and the group's nearest change."""
    low, high = _reach(edit)
    return min(max(0, i1 - high, low - i2) for tag, i1, i2, _, _ in group if tag != "equal")


def _reach(edit: Edit) -> tuple[int, int]:
    """The line gaps an edit may change: gap n lies after line n."""
    span = edit.site.span
    if edit.how is How.BEFORE:
        return span.line - 1, span.line - 1
    if edit.how is How.AFTER:
        return span.end_line, span.end_line
    return span.line - 1, span.end_line
