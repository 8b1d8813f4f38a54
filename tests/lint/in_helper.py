"""The same program with what is wrong in a helper that says nothing else."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace

from tests.lint.cases import Case, Mark

HELPER = "carry_out"


def in_helper(case: Case, mark: Mark) -> Case | None:
    """The marked call alone in a function of its own; None if it is no statement of its own.

    `torch.save(net.state_dict(), path)` is `carry_out(net, path)`, and at the top of the file
    stands `def carry_out(net, path): return torch.save(net.state_dict(), path)`.
    """
    files = dict(case.files)
    if not mark.path.endswith(".py"):
        return None
    tree = ast.parse(files[mark.path])
    call = _marked(tree, mark.line)
    if call is None:
        return None
    given = sorted(_variables(tree, call))
    _Replaced(call, ast.Call(ast.Name(HELPER), [ast.Name(one) for one in given], [])).visit(tree)
    body = f"def {HELPER}({', '.join(given)}):\n    return {ast.unparse(call)}"
    helper = f"\n\n{body}  # {' | '.join(sorted(mark.codes))}\n\n"
    made = ast.unparse(_with_helper(tree)).replace(f"'{HELPER}'", helper, 1)
    return replace(case, files=tuple({**files, mark.path: made}.items()))


def _marked(tree: ast.Module, line: int) -> ast.Call | None:
    statements = (n for n in ast.walk(tree) if isinstance(n, (ast.Expr, ast.Assign)))
    values = (one.value for one in statements if one.lineno == line)
    return next((value for value in values if isinstance(value, ast.Call)), None)


def _variables(tree: ast.Module, call: ast.Call) -> set[str]:
    """What the call reads, but for what the file imports and defines."""
    known = {*dir(builtins)}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            known |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            known.add(node.name)
    inner = {one.arg for one in ast.walk(call) if isinstance(one, ast.arg)}
    names = (one for one in ast.walk(call) if isinstance(one, ast.Name))
    stored = {one.id for one in names if isinstance(one.ctx, ast.Store)}
    read = {one.id for one in ast.walk(call) if isinstance(one, ast.Name)}
    return read - known - inner - stored


def _with_helper(tree: ast.Module) -> ast.Module:
    """A place for the helper after the imports."""
    imports = (ast.Import, ast.ImportFrom)
    last = max((n for n, one in enumerate(tree.body) if isinstance(one, imports)), default=-1)
    tree.body.insert(last + 1, ast.Expr(ast.Constant(HELPER)))
    return tree


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.Call, new: ast.Call) -> None:
        self.old, self.new = old, new

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)
