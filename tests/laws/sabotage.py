"""Programs with one thing hidden from the reader: an import, a helper, a model, one at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ddpify.facts.model import Facts
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.values import Kind, Value
from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from ddpify.source import Site

# Chosen while the program runs: no reader knows which function of the file it is.
LATE = "getattr(__import__('sys').modules[__name__], __import__('os').environ['{}'])"
KEPT = (
    Kind.MODEL,
    Kind.WRAPPED,
    Kind.CRITERION,
    Kind.OPTIMIZER,
    Kind.SCHEDULER,
    Kind.DATASET,
    Kind.LOADER,
    Kind.TRACKER,
    Kind.FILE,
)


@dataclass(frozen=True)
class Hidden:
    """What is hidden where: the text of one place of a program, and another one for it."""

    how: str
    site: Site
    text: str

    def __str__(self) -> str:
        return f"{self.how} {self.site}"

    def line_before(self, path: str, line: int) -> int:
        """Where a line stood before the file was changed."""
        span = self.site.span
        more = self.text.count("\n") - (span.end_line - span.line)
        return line - more if path == self.site.path and line > span.line else line

    @contextmanager
    def applied(self, root: Path) -> Iterator[None]:
        """A time in which the file is changed."""
        file = root / self.site.path
        before = file.read_bytes()
        lines = before.decode().splitlines(keepends=True)
        line, column, end_line, end = self.site.span
        head, tail = lines[line - 1][:column], lines[end_line - 1][end:]
        lines[line - 1 : end_line] = [f"{head}{self.text}{tail}"]
        file.write_bytes("".join(lines).encode())
        try:
            yield
        finally:
            file.write_bytes(before)


def is_said(one: Hidden, entry: Path, known: Outcome) -> bool:
    """Whether the mutant of a program that is migrated is refused, migrated in the same way, or
    something is said of it that was not said of the whole program."""
    with one.applied(known.root):
        outcome = migrate([entry], Settings())
    if outcome.refusals:
        return True
    assert outcome.account is not None
    told = {(path, one.line_before(path, line), message) for path, line, message in _said(outcome)}
    edits = [
        (path, one.line_before(path, line), how, code) for path, line, how, code in _edits(outcome)
    ]
    return bool(told - set(_said(known))) or edits == _edits(known)


def _said(outcome: Outcome) -> Iterator[tuple[str, int, str]]:
    account = outcome.account.left if outcome.account is not None else ()
    for note in (*outcome.notes, *account):
        yield note.site.path, note.site.span.line, note.message
    for one in outcome.findings:
        if not one.fix:
            yield one.site.path, one.site.span.line, one.message


def _edits(outcome: Outcome) -> list[tuple[str, int, str, str]]:
    return [
        (edit.site.path, edit.site.span.line, edit.how.value, edit.code)
        for one in outcome.findings
        for edit in one.fix
    ]


def mutants(facts: Facts) -> Iterator[Hidden]:
    """Everything in a program that can be hidden in one of these ways."""
    for path, tree in facts.trees.items():
        for node in tree.nodes():
            if isinstance(node, ast.ImportFrom) and node.module and _is_local(facts, path, node):
                named = ast.ImportFrom(f"hidden.{node.module}", node.names, 0)
                yield Hidden("import", tree.site(node), ast.unparse(named))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                callee = facts.values.get(tree.site(node.func), Value())
                if any(isinstance(t.ref, FunctionInfo) for t in callee.things):
                    site = tree.site(node.func)
                    yield Hidden("helper", site, LATE.format(node.func.id))
            if isinstance(node, ast.Assign):
                value = facts.values.get(tree.site(node.value), Value())
                if value.of(*KEPT) and not isinstance(node.value, (ast.Name, ast.Attribute)):
                    kept = f"__import__('hidden').Box({ast.unparse(node.value)}).inner"
                    yield Hidden("box", tree.site(node.value), kept)


def _is_local(facts: Facts, path: str, node: ast.ImportFrom) -> bool:
    parts = (node.module or "").split(".")
    files = {Path(other).with_suffix("").parts for other in facts.trees}
    return any(file[-len(parts) :] == tuple(parts) for file in files if len(file) >= len(parts))


def further_mutants(facts: Facts) -> Iterator[Hidden]:
    """What can be hidden in other ways: passes, decorators, bases and methods that nobody read."""
    for tree in facts.trees.values():
        for node in tree.nodes():
            if isinstance(node, ast.For) and _holds(facts, tree.site(node.iter), Kind.LOADER):
                passes = f"__import__('hidden').passes({tree.text(node.iter)})"
                yield Hidden("pass", tree.site(node.iter), passes)
            if isinstance(node, ast.FunctionDef):
                above = f"@__import__('hidden').changed\n{' ' * node.col_offset}"
                yield Hidden("decorator", tree.site(node), above + tree.text(node))
            if isinstance(node, ast.ClassDef) and node.bases:
                yield Hidden("base", tree.site(node.bases[0]), "__import__('hidden').Base")
            if isinstance(node, ast.Attribute) and _holds(facts, tree.site(node.value), *KEPT):
                late = f"getattr({tree.text(node.value)}, __import__('os').environ['{node.attr}'])"
                yield Hidden("attribute", tree.site(node), late)


def _holds(facts: Facts, site: Site, *kinds: Kind) -> bool:
    return bool(facts.values.get(site, Value()).of(*kinds))
