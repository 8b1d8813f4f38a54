"""Closure, idempotence and locality, over the fixtures and every bad example that migrates."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpify.discover import python_files
from ddpify.facts.model import Status
from ddpify.lint import lint
from ddpify.names import COLLECTIVES, CORE, METRICS
from ddpify.plan import Change
from ddpify.rules.base import Edit, How, Severity
from ddpify.source import Source
from tests.laws.cases import Case, case, example_cases, fixture_cases
from tests.projects import helper_lines, read


@pytest.fixture(scope="module", params=[*fixture_cases(), *example_cases()])
def migrated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case(request.param, tmp_path_factory.mktemp("law"))


def refused(migrated: Case) -> bool:
    """A refusal leaves everything as it was: there is nothing more to hold of it."""
    if migrated.outcome.refusals:
        assert migrated.outcome.changes == ()
    return bool(migrated.outcome.refusals)


def test_only_what_has_no_fix_is_refused(migrated: Case) -> None:
    if not migrated.outcome.refusals:
        fixable = any(finding.fix for finding in migrated.outcome.findings)
        assert bool(migrated.outcome.changes) == fixable
        return
    facts = read(migrated.before / migrated.outcome.entries[0])
    stuck = [f for f in migrated.outcome.findings if f.severity is Severity.ERROR and not f.fix]
    disposed = [r for r in migrated.outcome.refusals if "once migrated, DDP" in r.message]
    assert facts.status is Status.DISTRIBUTED or stuck or disposed or not facts.training
    assert not migrated.outcome.changes


def test_closure_what_is_migrated_has_nothing_left_to_fix(migrated: Case) -> None:
    if refused(migrated):
        return
    left = migrated.again
    assert [(f.rule, str(f.site)) for f in left.findings if f.fix] == []
    assert not left.refusals


def test_the_helpers_that_come_with_it_are_read_in_ten_minutes(migrated: Case) -> None:
    split = any("split_batches" in c.after.decode() for c in migrated.outcome.changes)
    assert helper_lines(migrated.outcome) <= (560 if split else 410)


def test_the_linter_finds_no_error_in_what_is_migrated(migrated: Case) -> None:
    if refused(migrated):
        return
    named = {finding.rule for finding in migrated.again.findings}
    root = migrated.entry.parent
    found = lint(root, list(python_files(root))).findings
    errors = [f for f in found if f.severity is Severity.ERROR and f.rule not in named]
    assert [(f.rule, str(f.site)) for f in errors] == []


def test_idempotence_migrating_again_changes_nothing(migrated: Case) -> None:
    if refused(migrated):
        return
    assert not migrated.again.refusals
    assert migrated.again.changes == ()


def test_no_collective_waits_for_ranks_that_a_rank_condition_keeps_away(migrated: Case) -> None:
    if refused(migrated) or migrated.outcome.starts_itself:  # Lightning has the loop
        return
    facts = read(migrated.entry)
    calls = [
        *facts.named(*(f"ddpify.runtime.{name}" for name in COLLECTIVES)),
        *(forward.call for forward in facts.training_forwards),
        *(loop.backward for loop in facts.training),
    ]
    assert calls
    assert [str(call.site) for call in calls if call.where.one_rank()] == []


def test_locality_every_changed_line_belongs_to_a_planned_edit(migrated: Case) -> None:
    for change in migrated.outcome.changes:
        assert all(one.rule and one.reason for one in change.edits)
        if change.before is not None:
            assert list(_strangers(change, migrated.before)) == []


def _strangers(change: Change, root: Path) -> Iterator[str]:
    """Changed lines that no edit of the change explains."""
    assert change.before is not None
    old, new = (_lines(raw) for raw in (change.before, change.after))
    mine = _planned(change, root, old)
    for how, start, end, first, last in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        gap = start == end and bool({start, start + 1} & mine or _imports(new[first:last]))
        lines = start < end and set(range(start + 1, end + 1)) <= mine
        if how != "equal" and not gap and not lines:
            yield f"{change.path}:{start + 1}: {old[start:end]} -> {new[first:last]}"


def _lines(raw: bytes) -> list[str]:
    return raw.decode("utf-8", "surrogateescape").splitlines(keepends=True)


def _imports(lines: list[str]) -> bool:
    """Whether these lines are an import of the runtime, or stand within one."""
    text = "".join(lines).strip()
    begins = re.match(r"from (?:core\.)?ddp_(?:utils|metrics) import", text)
    return bool(begins or re.fullmatch(r"(\w+,\s*)+", text))


def _planned(change: Change, root: Path, old: list[str]) -> set[int]:
    """The old lines that the edits are about and the imports of helpers, with the blank lines
    around them and the comments above."""
    touched: set[int] = set()
    tree = Source.read(root / change.path, change.path).parse() if _is_python(change) else None
    for one in change.edits:
        touched |= set(_range(one.edit, tree))
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] in (
            CORE,
            METRICS,
        ):
            touched |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    for step in (-1, 1):
        for line in list(touched):
            while 0 < line + step <= len(old) and _goes_with(old[line + step - 1], step):
                line += step
                touched.add(line)
    return touched


def _goes_with(line: str, step: int) -> bool:
    """Blank lines around a statement, and the comment above it, which moves with it."""
    return not line.strip() or (step < 0 and line.lstrip().startswith("#"))


def _is_python(change: Change) -> bool:
    return change.path.endswith(".py")


def _range(edit: Edit, tree: ast.Module | None) -> range:
    """Whole statements for edits around them, headers for edits of an expression in one."""
    span = edit.site.span
    if edit.how is How.BEFORE:
        return range(span.line - 1, span.line + 1)
    if edit.how is How.AFTER:
        return range(span.end_line, span.end_line + 2)
    if tree is None or edit.how in (How.GATE, How.INDENT, How.DELETE):
        return range(span.line, span.end_line + 1)
    holders = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= span.line <= _header_end(node)
    ]
    return range(holders[-1].lineno, _header_end(holders[-1]) + 1)


def _header_end(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    end = node.end_lineno if not body else body[0].lineno - 1
    return max(node.lineno, end or 0)
