"""Facts propose, ranks dispose: the result of a migration, read as several ranks would run it.

The plan rests on one reading, of one process. Before anything is written the other reading goes
over the rendered files, in memory. What it finds was brought in by the plan, as one process has no
ranks that could differ: the fixes that wrote those lines are withdrawn, or nothing is written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ddpify.accepting import is_accepted, note
from ddpify.facts.model import Facts
from ddpify.lint import Linted, lint_scripts
from ddpify.mending import mended
from ddpify.outcome import Note, Outcome, Refusal
from ddpify.plan import Change
from ddpify.reading import is_converted
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Source, Span

_APART = "257"  # families of rules that are neither about models nor about collectives
_ALIKE = 0.6  # the share of a line that is there still
_NEAR = 6  # lines within which a statement is found again that an edit has indented


def dispose(rendered: Outcome, settings: Settings, facts: Sequence[Facts]) -> Outcome:
    """The rendered outcome if its programs are right for several ranks.

    Else one without changes: its findings lack the fixes that are at fault, or have one that mends
    what was found, so that it can be rendered again, or it is refused.
    """
    linted = _read(rendered, settings)
    texts = {change.path: _Versions(change) for change in rendered.changes}
    mend = _mend(linted, rendered, texts, facts)
    if mend is not None:
        return replace(rendered, changes=(), findings=(*rendered.findings, mend))
    withdrawn: dict[Finding, Finding] = {}
    refused: list[Finding] = []
    vain: list[Finding] = []  # what is found of a mend: what it could not mend is said instead
    left: list[Finding] = []
    accepted: list[Note] = []
    by_hand = {(one.rule, *_line(one.site)) for one in rendered.findings if not one.fix}
    for one in linted.findings:
        told = one.severity is Severity.WARNING and (one.rule, *_kept(one, texts)) in by_hand
        if one.severity is Severity.NOTE or told:
            continue
        culprits = _culprits(one, rendered, texts)
        if culprits and all(finding.severity is not Severity.ERROR for finding in culprits):
            withdrawn |= dict.fromkeys(culprits, one)
        elif culprits or one.severity is Severity.ERROR:
            site = _original(one, texts)
            if site and is_accepted(one.rule, site, settings, rendered.root):
                accepted.append(note(one, site))
            elif any(finding.mends for finding in culprits):
                vain.append(one)
            else:
                refused.append(one)
        else:
            left.append(one)
    as_ever = _as_ever(refused, rendered, settings, texts, facts)
    left += [replace(one, advice=f"it was so before; {one.advice}") for one in as_ever]
    refused = [one for one in refused if one not in as_ever]
    if refused or vain:
        refusals = dict.fromkeys(_refusal(one, texts) for one in refused or vain)
        rendered = _without_mended(rendered, linted, texts)
        return replace(rendered, changes=(), refusals=tuple(refusals))
    if not withdrawn:
        rendered = _without_mended(rendered, linted, texts)
        notes = (*rendered.notes, *dict.fromkeys(accepted), *_unread(linted))
        return replace(rendered, findings=_with(rendered, left, texts), notes=notes)
    findings = (
        _without_fix(finding, withdrawn[finding], texts) if finding in withdrawn else finding
        for finding in rendered.findings
    )
    return replace(rendered, changes=(), findings=tuple(findings))


def _mend(
    linted: Linted, rendered: Outcome, texts: Mapping[str, _Versions], facts: Sequence[Facts]
) -> Finding | None:
    """One fix at a time: what it helps is not found any more when the result is read again."""

    def line(site: Site) -> int | None:
        return texts[site.path].kept(site.span.line) if site.path in texts else site.span.line

    if linted.unread:  # whether all ranks come to what is written would not be seen
        return None
    errors = (one for one in linted.findings if one.mends and one.severity is Severity.ERROR)
    tried = (mended(one, line, facts, rendered.findings) for one in errors)
    return next((one for one in tried if one is not None), None)


def _with(
    rendered: Outcome, left: Iterable[Finding], texts: Mapping[str, _Versions]
) -> tuple[Finding, ...]:
    """The outcome's findings, and warnings about lines that no fix wrote, at their old place."""
    said = {(one.rule, *_line(one.site)) for one in rendered.findings}
    added = []
    for one in left:
        site = _original(one, texts)
        if site is not None and (one.rule, *_line(site)) not in said:
            added.append(replace(one, site=site, fix=(), because=()))
    return (*rendered.findings, *added)


def _without_mended(rendered: Outcome, linted: Linted, texts: Mapping[str, _Versions]) -> Outcome:
    """Of a program that was judged as this one is: what was found, and fixes have mended."""
    if not rendered.starts_itself or linted.unread:
        return rendered
    again = {(one.rule, *_kept(one, texts)) for one in linted.findings}
    left = (f for f in rendered.findings if f.fix or (f.rule, *_line(f.site)) in again)
    return replace(rendered, findings=tuple(left))


def _kept(found: Finding, texts: Mapping[str, _Versions]) -> tuple[str, int | None]:
    """The line of the original that a finding's line still is; None where the plan wrote it."""
    path, line = _line(found.site)
    return path, texts[path].kept(line) if path in texts else line


def _line(site: Site) -> tuple[str, int]:
    return site.path, site.span.line


def _read(rendered: Outcome, settings: Settings) -> Linted:
    root = rendered.root.resolve()
    python = (change for change in rendered.changes if change.path.endswith(".py"))
    texts = {root / change.path: change.after for change in python}
    entries = [root / path for path in rendered.entries]
    return lint_scripts(root, entries, texts, settings.wants, rendered.starts_itself)


def _as_ever(
    found: Sequence[Finding],
    rendered: Outcome,
    settings: Settings,
    texts: Mapping[str, _Versions],
    facts: Sequence[Facts],
) -> list[Finding]:
    """What a program did wrong before it was converted: with loaders, files, numbers for people.

    What is wrong with its model or with collectives may show otherwise since.
    """
    apart = [one for one in found if one.rule[3] in _APART]
    if not apart or not all(is_converted(one, settings) for one in facts):
        return []
    linted = _read(replace(rendered, changes=()), settings)
    before = {(one.rule, *_line(one.site)) for one in linted.findings}
    return [one for one in apart if (one.rule, *_kept(one, texts)) in before]


def _unread(linted: Linted) -> Iterator[Note]:
    """Programs that were not judged, named so that silence is not taken for praise."""
    for path in linted.unread:
        why = "the migrated program could not be read to its end: try it on two processes first"
        yield Note(Site(path, Span(1, 0, 1, 0)), why)


def _without_fix(finding: Finding, why: Finding, texts: Mapping[str, _Versions]) -> Finding:
    advice = f"the fix was withdrawn, as with it: {_refusal(why, texts).message}"
    return replace(finding, fix=(), advice=advice)


def _refusal(found: Finding, texts: Mapping[str, _Versions]) -> Refusal:
    """One line that names the place in the original, where it has one."""
    site = _original(found, texts)
    told = f"once migrated, {found.rule} {found.message}; {found.advice}".rstrip("; ")
    if site is None:
        return Refusal(f"{found.site} of the migrated file: {told}", None, found)
    accept = f"{found.rule}@{site}"
    message = f"{site}: {told}; `--accept {accept}` migrates it as it stands"
    return Refusal(message, site, found, accept)


def _original(found: Finding, texts: Mapping[str, _Versions]) -> Site | None:
    """Where a finding stands in the files as they are; None in a new one."""
    versions = texts.get(found.site.path)
    line = versions.before(found.site.span.line) if versions else found.site.span.line
    return None if line is None else Site(found.site.path, Span(line, 0, line, 0))


def _culprits(
    found: Finding, rendered: Outcome, texts: Mapping[str, _Versions]
) -> tuple[Finding, ...]:
    """The findings whose fixes wrote the line, else those that wrote what led there."""
    for site in (found.site, *(site for site, _ in found.because)):
        versions = texts.get(site.path)
        changed = versions.replaced(site.span.line) if versions else None
        if changed is None:
            continue
        wrote = [
            finding
            for finding in rendered.findings
            if any(edit.site.path == site.path and _lies_in(edit, changed) for edit in finding.fix)
        ]
        if versions is not None and wrote:
            return _narrowed(wrote, versions, site)
    return ()


def _narrowed(wrote: list[Finding], versions: _Versions, site: Site) -> tuple[Finding, ...]:
    """Those of several neighbours whose code has the line, or that cover what it was."""
    text, line = versions.text(site.span.line), versions.before(site.span.line) or 0
    own = [one for one in wrote if any(text in edit.code for edit in one.fix)]
    spans = [(one, edit.site.span) for one in wrote for edit in one.fix]
    over = [one for one, span in spans if span.line <= line <= span.end_line]
    return tuple(dict.fromkeys(own or over or wrote))


def _lies_in(edit: Edit, gaps: tuple[int, int]) -> bool:
    """Whether an edit changes lines between two gaps; gap n lies after line n."""
    span = edit.site.span
    low, high = span.line - 1, span.end_line
    if edit.how is How.BEFORE:
        high = low
    if edit.how is How.AFTER:
        low = high
    return edit.how is not How.NEW_FILE and low <= gaps[1] and gaps[0] <= high


@dataclass(frozen=True)
class _Versions:
    """A file before and after, line by line."""

    change: Change

    @cached_property
    def _blocks(self) -> Sequence[tuple[str, int, int, int, int]]:
        old, new = self._lines
        return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()

    @cached_property
    def _lines(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        path = self.change.path
        old, new = (
            Source.plain(raw, Path(path), path).lines
            for raw in (self.change.before or b"", self.change.after)
        )
        return old, new

    def text(self, line: int) -> str:
        """A line of the result without its indentation."""
        return self._lines[1][line - 1].strip()

    def replaced(self, line: int) -> tuple[int, int] | None:
        """The gaps in the original between which a line of the result was written."""
        for tag, start, stop, first, last in self._blocks:
            if first < line <= last and tag != "equal":
                return start, stop
        return None

    def before(self, line: int) -> int | None:
        """The line of the original that became a line of the result, or in whose place it was
        written; None in a new file."""
        if self.change.before is None:
            return None
        gap = self.replaced(line)
        return self.kept(line) or (gap[0] + 1 if gap is not None else None)

    def kept(self, line: int) -> int | None:
        """The line of the original that is still there, changed in parts; None for a new one."""
        old, new = self._lines
        for tag, start, stop, first, last in self._blocks:
            if first < line <= last:
                if tag == "equal":
                    return start + line - first
                near = (n for n in range(start - _NEAR, stop + _NEAR) if 0 <= n < len(old))
                likeness = {n: _likeness(old[n], new[line - 1]) for n in near}
                best = max(likeness, key=likeness.__getitem__, default=-1)
                return best + 1 if likeness.get(best, 0) >= _ALIKE else None
        return None


def _likeness(old: str, new: str) -> float:
    """How much of a line is still there in another one, whatever their indentation."""
    return difflib.SequenceMatcher(None, old.strip(), new.strip()).ratio()
