"""``if self.x is None: self.x = …``: what all ranks have made once is not made again by one."""

from __future__ import annotations

import ast

from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import FALSE


def first_use(m: RankMachine, f: RankFrame, node: ast.If, test: RankValue) -> RankValue:
    """The condition of an ``if``: false where all ranks have come by before."""
    missing = _missing(node)
    if missing is None or test.known:
        return test
    things = m.evaluate(f, missing.value).things
    if len(things) != 1:
        return test
    if (node, things[0]) in m.made:
        return FALSE
    if m.live == ALL:
        m.made.add((node, things[0]))
    return test


def _missing(node: ast.If) -> ast.Attribute | None:
    """The attribute that is set in the block if it is None or false, or not there."""
    test = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        asked = test.left if ast.unparse(test.comparators[0]) == "None" else test
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = _asked_for(test.operand) or test.operand
    else:
        return None
    if not (isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Name)):
        return None
    inside = [one for statement in node.body for one in ast.walk(statement)]
    targets = {ast.unparse(t) for one in inside if isinstance(one, ast.Assign) for t in one.targets}
    return asked if ast.unparse(asked) in targets or _builds(node, asked.value) else None


def _builds(node: ast.If, owner: ast.expr) -> bool:
    """``self._build()``, alone in the block: a method of the object that is asked."""
    call = node.body[0].value if isinstance(node.body[0], ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) and len(node.body) == 1 else None
    return isinstance(func, ast.Attribute) and ast.unparse(func.value) == ast.unparse(owner)


def _asked_for(node: ast.expr) -> ast.expr | None:
    """``x.name`` of ``hasattr(x, "name")``."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr"):
        return None
    given = node.args[1:] or [node]
    name = given[0].value if isinstance(given[0], ast.Constant) else None
    return ast.Attribute(node.args[0], name, ast.Load()) if isinstance(name, str) else None
