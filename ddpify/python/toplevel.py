"""What the statements of a module or of a class body bind and change, told from the tree alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_LINES = 24  # of a loop at the top level: longer ones are programs
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_PLAIN = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Statements:
    """The statements that bind a name, and those that may change what it is bound to."""

    binding: list[ast.stmt] = field(default_factory=list)
    changing: list[ast.stmt] = field(default_factory=list)

    @property
    def simple(self) -> bool:
        """Whether a single assignment says all of a name."""
        return not self.changing and len(self.binding) == 1 and _is_plain(self.binding[0])

    @property
    def value(self) -> ast.expr | None:
        """The value that a single assignment gives a name."""
        one = self.binding[0] if self.simple else None
        return one.value if isinstance(one, (ast.Assign, ast.AnnAssign)) else None


def statements_of(body: Iterable[ast.stmt], imports: bool = False) -> dict[str, Statements]:
    """By name, in the order of the text; those of ``imports``, too, if that is asked for."""
    found: dict[str, Statements] = {}
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and imports:
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                found.setdefault(name, Statements()).binding.append(node)
        if isinstance(node, _PLAIN) or _is_main(node):
            continue
        if not (_is_plain(node) or isinstance(node, ast.ClassDef) or _is_short(node)):
            continue
        binds, changes = _touched(node)
        for name in binds:
            found.setdefault(name, Statements()).binding.append(node)
        for name in changes - binds:
            found.setdefault(name, Statements()).changing.append(node)
    return found


def _is_short(node: ast.stmt) -> bool:
    return (node.end_lineno or node.lineno) - node.lineno <= MAX_LINES


def _is_plain(node: ast.stmt) -> bool:
    """``name = value``."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return bool(targets) and all(isinstance(target, ast.Name) for target in targets)


def _is_main(node: ast.stmt) -> bool:
    """``if __name__ == "__main__"``: nothing that an import runs."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _touched(node: ast.stmt) -> tuple[set[str], set[str]]:
    """The names that a statement binds, and those whose objects it may change."""
    if isinstance(node, ast.ClassDef):
        return {node.name}, set()
    if _is_plain(node):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
        return {target.id for target in targets if isinstance(target, ast.Name)}, set()
    binds: set[str] = set()
    changes: set[str] = set()
    for one in _within(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)):
            binds.add(one.id)
        elif isinstance(one, (ast.Attribute, ast.Subscript)) and not isinstance(one.ctx, ast.Load):
            changes.update(_root(one))
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            changes.update(_root(one.func))
    return binds, changes


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, those in functions excluded."""
    todo: list[ast.AST] = [node]
    while todo:
        one = todo.pop()
        yield one
        todo += [n for n in ast.iter_child_nodes(one) if not isinstance(n, _SCOPES)]


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
