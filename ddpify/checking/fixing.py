"""The contents of files once findings are fixed: every finding's fix whole, or not at all."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify.checking.codes import UNUSED
from ddpify.plan import Change, Plan, PlannedEdit
from ddpify.rewrite import ReadOnlySource, RewriteError, Style, render
from ddpify.rules.base import Finding, How
from ddpify.source import Source, UnreadableSource


@dataclass(frozen=True)
class Fixed:
    """The text to be written, the findings that it settles, and why others stay."""

    changes: tuple[Change, ...] = ()
    done: tuple[Finding, ...] = ()
    left: tuple[str, ...] = ()


def fix(
    findings: Iterable[Finding], read: Callable[[str], bytes], line_length: int | None
) -> Fixed:
    """Fix what has a fix; ``read`` gives a file's bytes by its path in the findings.

    Edits that exclude each other are not made, nor those of a file that cannot be rewritten: the
    reasons are in ``left``.
    """
    wanted = [one for one in findings if one.fix]
    comments = [one for one in wanted if one.rule == UNUSED]
    wanted = [one for one in wanted if one.rule != UNUSED]
    left: list[str] = []
    originals = _sources((*wanted, *comments), read, left)
    wanted, comments = (_within(group, originals) for group in (wanted, comments))
    bare = _without(comments, originals)
    style = Style.of(line_length)
    while True:
        plan = Plan.of(wanted, bare)
        if plan.clashes:
            left += [f"{clash.site}: {clash.message}" for clash in plan.clashes]
            wanted = [one for one in wanted if not _clashes(one, plan)]
        try:
            changes = render(Plan.of(wanted, bare), bare, style)
        except (ReadOnlySource, RewriteError) as error:
            left.append(str(error))
            wanted, fewer = _others(wanted, error), len(wanted)
            if len(wanted) == fewer:
                raise
        else:
            return Fixed(
                _whole(changes, comments, originals, bare), (*wanted, *comments), _once(left)
            )


def _once(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))


def _paths(finding: Finding) -> set[str]:
    return {edit.site.path for edit in finding.fix}


def _sources(
    findings: Iterable[Finding], read: Callable[[str], bytes], left: list[str]
) -> dict[str, Source]:
    """The files that fixes are about; new ones have none."""
    found: dict[str, Source] = {}
    for edit in (edit for one in findings for edit in one.fix):
        path = edit.site.path
        if path in found or (edit.how is How.NEW_FILE and not Path(path).exists()):
            continue
        try:
            found[path] = _source(path, edit.how, read(path))
        except (OSError, UnreadableSource) as error:
            left.append(str(error))
    return found


def _source(path: str, how: How, raw: bytes) -> Source:
    if not path.endswith(".py") and how in (How.TEXT, How.NEW_FILE):
        return Source.plain(raw, Path(path), path)
    return Source.from_bytes(raw, Path(path), path)


def _within(findings: Iterable[Finding], sources: Mapping[str, Source]) -> list[Finding]:
    """Those whose files could all be read."""
    return [
        one
        for one in findings
        if all(edit.site.path in sources or edit.how is How.NEW_FILE for edit in one.fix)
    ]


def _without(comments: Iterable[Finding], sources: Mapping[str, Source]) -> dict[str, Source]:
    """The sources without the comments that silence nothing. No code stands behind a comment, so
    that every place in the code stays what it was."""
    bare = dict(sources)
    edits = [edit for one in comments for edit in one.fix]
    for edit in sorted(edits, key=lambda edit: edit.site, reverse=True):
        source, span = bare[edit.site.path], edit.site.span
        lines = list(io.StringIO(source.text, newline=""))
        line = lines[span.line - 1]
        body = line.rstrip("\r\n")
        new = (body[: span.column] + edit.code + body[span.end_column :]).rstrip()
        lines[span.line - 1] = new + line[len(body) :]
        text = "".join(lines)
        bare[edit.site.path] = Source.from_bytes(source.encode(text), source.file, source.path)
    return bare


def _clashes(finding: Finding, plan: Plan) -> bool:
    """Whether the plan left an edit of this finding out."""
    made = {(one.edit.how, one.edit.site, one.edit.code, one.edit.name) for one in plan.edits}
    return any((e.how, e.site, e.code, e.name) not in made for e in finding.fix)


def _others(findings: list[Finding], error: ReadOnlySource | RewriteError) -> list[Finding]:
    """The findings that the error is not about."""
    rules = error.rules if isinstance(error, RewriteError) else None
    return [
        one
        for one in findings
        if error.path not in _paths(one) or (rules is not None and one.rule not in rules)
    ]


def _whole(
    changes: Iterable[Change],
    comments: Iterable[Finding],
    originals: Mapping[str, Source],
    bare: Mapping[str, Source],
) -> tuple[Change, ...]:
    """The changes stated against the files as they are, removed comments included."""
    silent: dict[str, list[PlannedEdit]] = {}
    for one in comments:
        for edit in one.fix:
            planned = PlannedEdit(edit, one.rule, one.message)
            silent.setdefault(edit.site.path, []).append(planned)
    found = {}
    for change in changes:
        before = originals[change.path].raw if change.path in originals else change.before
        edits = (*change.edits, *silent.pop(change.path, ()))
        found[change.path] = replace(change, before=before, edits=edits)
    for path, planned_edits in silent.items():
        raw = originals[path].raw
        found[path] = Change(path, raw, bare[path].raw, tuple(planned_edits))
    return tuple(found[path] for path in sorted(found))
