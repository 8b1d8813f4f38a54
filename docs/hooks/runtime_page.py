"""The helpers that migrated projects call: signatures and docstrings, read from runtime/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "runtime"
_HEAD = """# The helpers

`migrate` copies what a project calls of these into it, in one file or two: `ddp_utils.py` and
`ddp_metrics.py`. They need torch only. In one process each does what the code did before.
*Collective* helpers are called by every rank, in the same order.
"""
_Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """One page, a section for each file."""
    return _HEAD + "\n".join(line for file in _files() for line in _section(file)) + "\n"


def _files() -> list[Path]:
    return [file for file in sorted(_FOLDER.glob("*.py")) if file.stem != "__init__"]


def _public() -> set[str]:
    tree = ast.parse((_FOLDER / "__init__.py").read_text("utf-8"))
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return {alias.name for node in imports for alias in node.names}


def _section(file: Path) -> Iterator[str]:
    tree, public = ast.parse(file.read_text("utf-8")), _public()
    found = [n for n in tree.body if isinstance(n, _Definition) and n.name in public]
    if not found:
        return
    yield from (f"## {file.stem}", "", (ast.get_docstring(tree) or "").replace("``", "`"), "")
    for node in sorted(found, key=lambda one: one.name):
        yield from (f"### `{node.name}` {{ #{node.name} }}", "")
        yield from ("```python", _signature(node), "```", "")
        yield from ((ast.get_docstring(node) or "").replace("``", "`"), "")


def _signature(node: _Definition) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}({', '.join(map(ast.unparse, node.bases))})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"def {node.name}({ast.unparse(node.args)}){returns}"
    if len(line) <= 88:
        return line
    parts = "".join(f"    {part},\n" for part in _arguments(node.args))
    return f"def {node.name}(\n{parts}){returns}"


def _arguments(given: ast.arguments) -> Iterator[str]:
    """Each as it is written; a default belongs to one of the last."""
    plain = [*given.posonlyargs, *given.args]
    rest = [None] * (len(plain) - len(given.defaults))
    yield from map(_argument, plain, (*rest, *given.defaults))
    if given.vararg:
        yield f"*{ast.unparse(given.vararg)}"
    elif given.kwonlyargs:
        yield "*"
    yield from map(_argument, given.kwonlyargs, given.kw_defaults)
    if given.kwarg:
        yield f"**{ast.unparse(given.kwarg)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")
