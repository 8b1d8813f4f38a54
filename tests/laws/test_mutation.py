"""A migrated fixture has no findings; leaving any one rewrite out brings exactly that one back."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpify import launchers
from ddpify.discover import python_files
from ddpify.lint import lint
from ddpify.pipeline import migrate
from ddpify.plan import Change, Plan
from ddpify.project import Project
from ddpify.rewrite import render
from ddpify.rules.base import Finding
from ddpify.settings import Settings
from ddpify.source import Source
from tests.projects import migrated, put_fixture, write

VENDORED = "DDP001"
# A check for each rewrite is slow.
MUTATED = (
    pytest.param("classification", id="classification"),
    pytest.param("classification_dataparallel", id="dataparallel", marks=pytest.mark.thorough),
)


@dataclass(frozen=True)
class Migration:
    """A fixture's migration, and the text of all files it may change."""

    findings: tuple[Finding, ...]
    sources: dict[str, Source]
    changes: dict[str, Change]

    @property
    def fixed(self) -> tuple[Finding, ...]:
        """The findings that rewrite something, the runtime's file apart."""
        return tuple(f for f in self.findings if f.fix and f.rule != VENDORED)


def migration(entry: Path) -> Migration:
    """What migrate finds; refused it must not be."""
    outcome = migrate([entry], Settings())
    assert not outcome.refusals
    sources = {path: Project.of(entry).read(entry.parent / path) for path in outcome.files}
    for path in launchers.discover(entry.parent, outcome.entries):
        file = entry.parent / path
        sources[path] = Source.plain(file.read_bytes(), file, path)
    known = {path: source for path, source in sources.items() if source is not None}
    return Migration(outcome.findings, known, {change.path: change for change in outcome.changes})


def without(left_out: Finding, made: Migration, entry: Path) -> tuple[Finding, ...]:
    """Migrate the project of ``entry`` save for one finding; what is found then."""
    plan = Plan.of([finding for finding in made.findings if finding is not left_out])
    assert not plan.clashes
    paths = {one.site.path for one in left_out.fix}  # the other files come out as before
    rest = Plan(tuple(one for one in plan.edits if one.edit.site.path in paths))
    changes = {path: change for path, change in made.changes.items() if path not in paths}
    write((*changes.values(), *render(rest, made.sources)), entry.parent)
    found = migrate([entry], Settings())
    assert not found.refusals
    return found.findings


def corresponding(old: str, new: str, line: int) -> range:
    """The new lines that ``line`` may have become: what lies between its unchanged neighbours."""
    texts = [[one.strip() for one in text.splitlines()] for text in (old, new)]
    blocks = difflib.SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
    kept = {block.a + n + 1: block.b + n + 1 for block in blocks for n in range(block.size)}
    if line in kept:
        return range(kept[line], kept[line] + 1)
    above = max((new_line for old_line, new_line in kept.items() if old_line < line), default=0)
    below = min((new_line for old_line, new_line in kept.items() if old_line > line), default=10**6)
    return range(above + 1, below)


def complaint(left_out: Finding, found: tuple[Finding, ...], made: Migration, root: Path) -> str:
    """Why ``found`` is not exactly ``left_out``; "" when it is."""
    seen = [f"{finding.rule} at {finding.site}" for finding in found]
    if [finding.rule for finding in found] != [left_out.rule]:
        return f"found {seen}"
    path, line = left_out.site.path, left_out.site.span.line
    lines = corresponding(made.sources[path].text, (root / path).read_text("utf-8"), line)
    # One line off is the same place: what DDP301 wraps after may be deleted by another fix.
    lines = range(lines.start - 1, lines.stop + 1)
    there = found[0].site.path == path and found[0].site.span.line in lines
    return "" if there else f"found {seen}, expected it in lines {lines}"


@pytest.mark.parametrize("name", MUTATED)
def test_a_migrated_fixture_has_no_findings(name: str, tmp_path: Path) -> None:
    entry = put_fixture(name, tmp_path / "project")
    migrated(entry)
    outcome = migrate([entry], Settings())
    assert [(finding.rule, str(finding.site)) for finding in outcome.findings] == []
    assert not outcome.refusals
    assert lint(entry.parent, list(python_files(entry.parent))).findings == ()


@pytest.mark.parametrize("name", MUTATED)
def test_leaving_one_rewrite_out_brings_exactly_its_finding_back(name: str, tmp_path: Path) -> None:
    made = migration(put_fixture(name, tmp_path / "original"))
    complaints = {}
    for number, left_out in enumerate(made.fixed):
        entry = put_fixture(name, tmp_path / str(number))
        found = without(left_out, made, entry)
        wrong = complaint(left_out, found, made, entry.parent)
        if wrong:
            complaints[f"without {left_out.rule} at {left_out.site}"] = wrong
    assert len(made.fixed) > 20
    assert complaints == {}
