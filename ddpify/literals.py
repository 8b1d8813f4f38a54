"""Tables that stand in a program as one long literal: nobody asks for what is in them.

A list of a hundred thousand rows of numbers has a node for each number, which every look at the
file would pass. It becomes ``list(None)``: some list, of nothing that matters.
"""

from __future__ import annotations

import ast

LARGE = 100_000  # characters of a file, below which no table is worth looking for
MANY = 1_000  # entries of a table


def without_tables(tree: ast.Module) -> ast.Module:
    """The tree with each table of constants as one call."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                if isinstance(value, ast.expr) and _is_table(value):
                    setattr(node, name, _stub(value))
                else:
                    todo.append(value)
            elif isinstance(value, list):
                value[:] = [_stub(one) if _is_table(one) else one for one in value]
                todo += [one for one in value if isinstance(one, ast.AST)]
    return tree


def _is_table(node: object) -> bool:
    entries = _entries(node)
    return len(entries) > MANY and all(map(_is_plain, entries))


def _entries(node: object) -> list[ast.expr]:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return node.elts
    return [*(key for key in node.keys if key), *node.values] if isinstance(node, ast.Dict) else []


def _is_plain(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    inner = _entries(node)
    is_literal = isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict))
    return is_literal and all(map(_is_plain, inner))


def _stub(node: ast.expr) -> ast.expr:
    kind = "dict" if isinstance(node, ast.Dict) else "list"
    made = ast.Call(ast.Name(kind, ast.Load()), [ast.Constant(None)], [])
    for one in ast.walk(made):
        ast.copy_location(one, node)
    return made
