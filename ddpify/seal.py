"""The seal of a vendored copy: whether it is still what ddpify wrote.

The seal is a hash of the syntax tree, so that black, ruff and isort may lay the file out as the
project does; whatever changes what runs, or a docstring's words, breaks it. Comments are not in it.
"""

from __future__ import annotations

import ast
import hashlib

_DEFINITIONS = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def seal(body: str) -> str:
    """The seal of a text that parses."""
    tree = ast.parse(body)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    rest = [node for node in tree.body if node not in imports]
    names = sorted(name for node in imports for name in _bound(node))  # isort may sort and split
    tree.body = rest
    return hashlib.sha256(f"{names} {_shape(tree)}".encode()).hexdigest()[:12]


def is_sealed(text: str) -> bool:
    """Whether a copy is as its first line says: by its tree or, before 0.2, by its text."""
    header, _, body = text.partition("\n")
    words = header.split()
    if not words:
        return False
    try:
        seals = (hashlib.sha256(body.encode()).hexdigest()[:12], seal(body))
    except (SyntaxError, ValueError):
        return False
    return words[-1] in seals


def _bound(node: ast.Import | ast.ImportFrom) -> list[str]:
    owner = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
    return [f"{owner}:{one.name}:{one.asname}" for one in node.names]


def _shape(node: object) -> str:
    """A tree without its layout, the same in each version of Python: `x = 1` gives
    ``Assign(targets=[Name(id='x',),],value=Constant(value=1,),)``."""
    if isinstance(node, list):
        return f"[{''.join(f'{_shape(one)},' for one in node)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    if isinstance(node, _DEFINITIONS) and ast.get_docstring(node) is not None:
        # The words of a docstring only: formatters indent and strip its lines.
        words = " ".join((ast.get_docstring(node) or "").split())
        fields = [("doc", words), *((n, v[1:] if n == "body" else v) for n, v in fields)]
    shown = (f"{name}={_shape(value)}," for name, value in fields if name not in ("ctx", "kind"))
    return f"{type(node).__name__}({''.join(shown)})"
