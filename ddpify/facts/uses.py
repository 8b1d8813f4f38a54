"""What a count that differs between ranks is used for, wherever its value gets to."""

from __future__ import annotations

import ast

from ddpify.facts.details import Tally
from ddpify.facts.measures import ADDITIVE, MIXED
from ddpify.facts.protocol import Machine
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value
from ddpify.source import Site

# The value goes on, and is seen again where it arrives.
PASSES = (
    ast.Assign,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.Return,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.Starred,
    ast.For,
    ast.comprehension,
    ast.Expr,
)
ZERO_TESTS = (ast.Gt, ast.Eq, ast.NotEq)
PARTS = frozenset({"items", "values", "get", "pop"})
PROPERTIES = frozenset({"device", "dtype", "shape", "ndim"})


def only_divides(m: Machine, born: Site) -> bool:
    """Whether a count divides sums, perhaps if it is not zero, and is used for nothing else."""
    for site, tallies in m.tallied.items():
        if any(t.born == born for t in tallies) and not _divides(m, site, born):
            return False
    return True


def _divides(m: Machine, site: Site, born: Site) -> bool:
    tree = m.tree(site.path)
    node = tree.expression(site)
    above = tree.parent(node) if node is not None else None
    if node is None or above is None or isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    if isinstance(above, ast.keyword):
        above = tree.parent(above)
    if isinstance(above, (ast.BinOp, ast.AugAssign)):
        return _is_divisor(m, tree, node, above)
    if isinstance(above, ast.Compare):
        return _asks_for_any(node, above)
    if isinstance(above, ast.IfExp):
        return True
    if isinstance(above, ast.Attribute):
        return _method(m, tree, above, born)
    if isinstance(above, ast.Call):
        return _argument(m, tree, above, born)
    if isinstance(above, ast.UnaryOp):
        return isinstance(above.op, ast.Not)
    if isinstance(above, ast.Subscript):
        return above.value is node
    return isinstance(above, (*PASSES, ast.If))


def _is_divisor(m: Machine, tree: Tree, node: ast.expr, above: ast.BinOp | ast.AugAssign) -> bool:
    divisor, divided = (
        (above.right, above.left) if isinstance(above, ast.BinOp) else (above.value, above.target)
    )
    value = m.values.get(tree.site(divided))
    return isinstance(above.op, ast.Div) and divisor is node and _may_be_sum(value)


def _may_be_sum(value: Value | None) -> bool:
    """A sum, or part of a loss that is not followed: both parts of a loss have one divisor."""
    if value is None:
        return False
    return value.measure in ADDITIVE or (value.measure is MIXED and bool(value.dep(Kind.FORWARD)))


def _asks_for_any(node: ast.expr, above: ast.Compare) -> bool:
    """``n > 0``: of all ranks' count it is what one process asks."""
    others = [e for e in (above.left, *above.comparators) if e is not node]
    plain = len(others) == 1 and isinstance(above.ops[0], ZERO_TESTS) and above.left is node
    return plain and isinstance(others[0], ast.Constant) and others[0].value == 0


def _method(m: Machine, tree: Tree, attribute: ast.Attribute, born: Site) -> bool:
    call = tree.parent(attribute)
    if not isinstance(call, ast.Call) or call.func is not attribute:
        return attribute.attr in PROPERTIES
    return attribute.attr in PARTS or _goes_on(m, tree.site(call), born)


def _argument(m: Machine, tree: Tree, call: ast.Call, born: Site) -> bool:
    site = tree.site(call)
    if site in m.entered_at:
        return True
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("div", "div_"):
        value = m.values.get(tree.site(call.func.value))
        return value is not None and value.measure in ADDITIVE
    return _goes_on(m, site, born)


def _goes_on(m: Machine, site: Site, born: Site) -> bool:
    """Whether a call gives the same count in another form, which only divides."""
    forms = [t for t in m.tallied.get(site, ()) if _comes_from(t, born)]
    return bool(forms) and all(only_divides(m, t.born) for t in forms)


def _comes_from(thing: Thing, born: Site) -> bool:
    tally = thing.detail(Tally)
    return tally is not None and any(inner.born == born for inner in tally.form_of)
