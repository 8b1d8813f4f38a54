"""``if self.x is None: self.x = …``: what all ranks have made once is not made again by one."""

from __future__ import annotations

import ast

from ddpify.ranks.events import Store
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankThing, RankValue
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import FALSE, NONE


def first_use(m: RankMachine, f: RankFrame, node: ast.If, test: RankValue) -> RankValue:
    """The condition of an ``if``: false where all ranks have come by before."""
    return FALSE if not test.known and (node, _owner(m, f, node)) in m.made else test


def note_made(m: RankMachine, f: RankFrame, node: ast.If, stores: list[Store]) -> None:
    """Remember what all ranks have set in the block of an ``if`` that asks for it."""
    missing, owner, depth = _missing(node), _owner(m, f, node), len(m.here.guards)
    if missing is None or owner is None:
        return
    set_here = [
        one
        for one in stores
        if one.key == missing.attr and owner in one.base.things and one.ranks == ALL
        if one.loops == m.here.loops and one.value != NONE
    ]
    inner = ([g for g in one.guards[depth:] if not g.test.known] for one in set_here)
    ways = {tuple((guard.node, guard.holds) for guard in guards) for guards in inner}
    arms = (way[0] for way in ways if len(way) == 1)  # of a condition: it is set in either
    if () in ways or any(((asked, not holds),) in ways for asked, holds in arms):
        m.made.add((node, owner))


def _owner(m: RankMachine, f: RankFrame, node: ast.If) -> RankThing | None:
    """The object whose attribute is asked for."""
    missing = _missing(node)
    things = m.evaluate(f, missing.value).things if missing is not None else ()
    return things[0] if len(things) == 1 else None


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


def _asked_for(node: ast.expr) -> ast.expr | None:
    """``x.name`` of ``hasattr(x, "name")``."""
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr"):
        return None
    given = node.args[1:] or [node]
    name = given[0].value if isinstance(given[0], ast.Constant) else None
    return ast.Attribute(node.args[0], name, ast.Load()) if isinstance(name, str) else None
