"""``if self.x is None: self.x = …``: what all ranks have made once is not made again by one."""

from __future__ import annotations

import ast

from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankThing, RankValue
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import FALSE


def first_use(m: RankMachine, f: RankFrame, node: ast.If, test: RankValue) -> RankValue:
    """The condition of an ``if``: false where all ranks have come by before."""
    missing = _missing(node)
    if missing is None or test.known:
        return test
    things = m.evaluate(f, missing.value).things
    if len(things) != 1 or not _sets(node.body, missing, things[0]):
        return test
    if (node, things[0]) in m.made:
        return FALSE
    if m.live == ALL:
        m.made.add((node, things[0]))
    return test


def _missing(node: ast.If) -> ast.Attribute | None:
    """The attribute that is asked for: whether it is None, false or not there."""
    test = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        asked = test.left if ast.unparse(test.comparators[0]) == "None" else test
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = _asked_for(test.operand) or test.operand
    else:
        return None
    plain = isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Name)
    return asked if plain and isinstance(asked, ast.Attribute) else None


def _sets(body: list[ast.stmt], asked: ast.Attribute, owner: RankThing) -> bool:
    """Whether the attribute is set there, whatever else holds."""
    return any(_does_set(one, asked, owner) for one in body)


def _does_set(node: ast.stmt, asked: ast.Attribute, owner: RankThing) -> bool:
    if isinstance(node, ast.Assign):
        return ast.unparse(asked) in map(ast.unparse, node.targets)
    if isinstance(node, ast.If):
        return _sets(node.body, asked, owner) and _sets(node.orelse, asked, owner)
    if isinstance(node, ast.With):
        return _sets(node.body, asked, owner)
    return isinstance(node, ast.Expr) and _builds(node.value, asked, owner)


def _builds(call: ast.expr, asked: ast.Attribute, owner: RankThing) -> bool:
    """``self._build()``, a method of the object that sets it."""
    func = call.func if isinstance(call, ast.Call) else None
    if not isinstance(func, ast.Attribute) or ast.dump(func.value) != ast.dump(asked.value):
        return False
    method = owner.cls.method(func.attr) if owner.cls is not None else None
    if method is None or isinstance(method.node, ast.Lambda) or not method.parameters:
        return False
    own = ast.Attribute(ast.Name(method.parameters[0], ast.Load()), asked.attr, ast.Store())
    plain = (one for one in method.node.body if isinstance(one, (ast.Assign, ast.If, ast.With)))
    return any(_does_set(one, own, owner) for one in plain)


def _asked_for(node: ast.expr) -> ast.expr | None:
    """``x.name`` of ``hasattr(x, "name")``."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr"):
        return None
    given = node.args[1:] or [node]
    name = given[0].value if isinstance(given[0], ast.Constant) else None
    return ast.Attribute(node.args[0], name, ast.Load()) if isinstance(name, str) else None
