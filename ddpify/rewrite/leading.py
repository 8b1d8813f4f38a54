"""The import block at the head of a file, and the place in it for one more import.

New imports go where a reader looks for them, below every ``sys.path`` change that comes
with them, but never below new code that runs at import time and needs them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ddpify.rules.base import Edit, How
from ddpify.source import Source, Span

_SETTINGS = ("os.environ", "os.putenv", "warnings", "matplotlib", "mpl", "sys.path", "sys.stdout")


@dataclass(frozen=True)
class Block:
    """Numbers of module statements: a new import goes right before ``position``.

    ``limit`` is the first statement by which the names must be there; ``is_spaced`` says
    that the new import starts a block of its own.
    """

    position: int = 0
    limit: int = 0
    is_spaced: bool = False


def leading_block(tree: ast.Module, source: Source, edits: Sequence[Edit]) -> Block:
    """Where a file's new imports go, given the edits that need them."""
    body = tree.body
    floor = _floor(body)
    anchor = max((n + 1 for n in range(_head(body)) if _is_anchor(body[n])), default=floor)
    anchor = max(anchor, _after_path_change(body), floor)
    limit = max(_first_use(body, source, edits), floor)
    position = min(anchor, limit)
    previous = body[position - 1] if position else None
    return Block(position, limit, previous is None or not _is_anchor(previous) or position == floor)


def _floor(body: Sequence[ast.stmt]) -> int:
    """The docstring and ``from __future__`` come before anything else."""
    count = 1 if body and _is_docstring(body[0]) else 0
    while count < len(body) and _is_future(body[count]):
        count += 1
    return count


def _head(body: Sequence[ast.stmt]) -> int:
    """The first statement that is neither an import nor what stands between imports."""
    return next((n for n, node in enumerate(body) if not _belongs(node)), len(body))


def _belongs(node: ast.stmt) -> bool:
    return _is_docstring(node) or _is_anchor(node) or _is_setting(node) or _is_dunder(node)


def _is_anchor(node: ast.stmt) -> bool:
    """Imports in any form, and ``sys.path`` changes, which must come first."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Try):
        return any(_is_anchor(child) for child in node.body)
    if isinstance(node, ast.If):
        return all(_is_anchor(child) for child in node.body)
    return _changes_path(node)


def _changes_path(node: ast.stmt) -> bool:
    """``sys.path.insert(…)``, ``sys.path = …``, also under an ``if``."""
    match node:
        case ast.If(body=body):
            return any(_changes_path(child) for child in body)
        case ast.Expr(value=ast.Call(func=target)) | ast.AugAssign(target=target):
            pass
        case ast.Assign(targets=[target]):
            pass
        case _:
            return False
    return ast.unparse(target).startswith(("sys.path", "site.addsitedir"))


def _is_setting(node: ast.stmt) -> bool:
    """``os.environ[…] = …``, ``warnings.filterwarnings(…)``: written between imports."""
    match node:
        case ast.Expr(value=ast.Call(func=target)):
            pass
        case ast.Assign(targets=[ast.Subscript(value=target)]):
            pass
        case _:
            return False
    name = ast.unparse(target)
    return any(name == one or name.startswith(f"{one}.") for one in _SETTINGS)


def _is_dunder(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            plain = isinstance(value, ast.Constant | ast.List | ast.Tuple)
            return plain and name.startswith("__") and name.endswith("__")
    return False


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _after_path_change(body: Sequence[ast.stmt]) -> int:
    """Behind the imports that follow the last ``sys.path`` change, if any do."""
    changes = [n for n, node in enumerate(body) if _changes_path(node)]
    for change in reversed(changes):
        imports = [n for n in range(change + 1, len(body)) if _is_import(body[n])]
        if not imports or not all(_is_simple(node) for node in body[change + 1 : imports[0]]):
            continue
        end = imports[0]
        while end < len(body) and _is_import(body[end]):
            end += 1
        return end
    return 0


def _is_import(node: ast.stmt) -> bool:
    return _is_anchor(node) and not _changes_path(node)


def _is_simple(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.Expr | ast.If)


def _first_use(body: Sequence[ast.stmt], source: Source, edits: Sequence[Edit]) -> int:
    """The first statement that cannot run without the new names; the length if none."""
    uses = [_needed_by(body, source, edit) for edit in edits]
    return min((number for number in uses if number is not None), default=len(body))


def _needed_by(body: Sequence[ast.stmt], source: Source, edit: Edit) -> int | None:
    """The number of the statement before which the edit needs its names, if that matters."""
    span = edit.site.span
    around = (number for number, node in enumerate(body) if _contains(source, node, span))
    number = next(around, None)
    if number is None or _is_deferred(source, body[number], span):
        return None
    is_after = edit.how is How.AFTER and source.span(body[number]) == span
    return number + 1 if is_after else number


def _contains(source: Source, node: ast.stmt, span: Span) -> bool:
    decorators = getattr(node, "decorator_list", [])
    start = min((one.lineno, 0) for one in (node, *decorators))
    whole = source.span(node)
    begin = (whole.line, whole.column) if not decorators else start
    return begin <= (span.line, span.column) and (span.end_line, span.end_column) <= (
        whole.end_line,
        whole.end_column,
    )


def _is_deferred(source: Source, node: ast.stmt, span: Span) -> bool:
    """Whether a statement stands in the body of a function, which runs later."""
    return any(
        _contains(source, child, span)
        for function in ast.walk(node)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in function.body
    )
