"""Evaluate expressions to abstract values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from ddpify.facts import (
    comprehensions,
    containers,
    counts,
    coupling,
    dealing,
    helper_calls,
    measures,
    objective,
    rows,
    sized,
    special,
    wrapping,
)
from ddpify.facts.attributes import attribute_node
from ddpify.facts.events import Access
from ddpify.facts.joining import computed, flat_deps, join, told
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.subscripts import subscript
from ddpify.facts.values import NO_CONST, NOTHING, Kind, Measure, Thing, Value, constant, one
from ddpify.facts.wrapping import unwrapped_model
from ddpify.python.imports import starred


def evaluate(m: Machine, f: Frame, node: ast.expr) -> Value:
    """The value of ``node``; remembered by its site for the rules."""
    handler = HANDLERS.get(type(node))
    if handler is None:
        parts = (c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
        value = computed(*[m.evaluate(f, part) for part in parts])
    else:
        value = handler(m, f, node)
    value = coupling.marked(m, f, node, value)
    if m.target.shares and m.site(f, node) in m.target.shares:
        value = counts.shared(f, value, m.site(f, node), value.measure is Measure.RATIO)
    if m.target.sized and m.site(f, node) in m.target.sized:
        value = sized.rows_of(m)
    if m.target.whole and m.site(f, node) in m.target.whole:
        value = coupling.gathered(value, f.no_grad)
    if m.target.agreed and m.site(f, node) in m.target.agreed:
        value = value.reduced()
    if m.target.dealt:
        value = dealing.measured(m, value)
    if m.target.averaged or m.target.summed:
        value = objective.averaged(m, f, value, m.site(f, node))
    m.remember(f, node, value)
    if m.target.unwraps and m.site(f, node) in m.target.unwraps:
        return wrapping.unwrapped(m, value)
    if m.target.again and m.site(f, node) in m.target.again:
        return helper_calls.whole_loader(m, f, value, m.site(f, node))
    return value


def _name(m: Machine, f: Frame, node: ast.Name) -> Value:
    if node.id not in f.env:
        m.summaries.looked_up(f.module.globals, node.id)
    value = f.lookup(node.id)
    if value is not None:
        return value
    return one(m.external(starred(node.id, f.module.stars), m.site(f, node)))


def _constant(m: Machine, f: Frame, node: ast.Constant) -> Value:
    known = f.module.constants.get(node)
    if known is None:
        known = f.module.constants[node] = constant(node.value)
    return known


def _tuple(m: Machine, f: Frame, node: ast.Tuple | ast.List | ast.Set) -> Value:
    spread = [isinstance(e, ast.Starred) for e in node.elts]
    items = [m.evaluate(f, e.value if isinstance(e, ast.Starred) else e) for e in node.elts]
    if any(spread):
        return containers.display(list(zip(items, spread, strict=True)), m.site(f, node))
    return one(Thing(Kind.TUPLE, m.site(f, node), containers.set_name(node), items=tuple(items)))


def _dict(m: Machine, f: Frame, node: ast.Dict) -> Value:
    keys: dict[object, Value] = {}
    for key, item in zip(node.keys, node.values, strict=True):
        value = m.evaluate(f, item)
        if isinstance(item, ast.Constant):
            value = value.but(setting=True)
        if key is None:
            for thing in value.things:
                keys.update(thing.keys or {})
            continue
        name = m.evaluate(f, key)
        plain = name.known and isinstance(name.const, (str, int))
        keys[name.const if plain else len(keys)] = value
    return one(Thing(Kind.DICT, m.site(f, node), keys=keys))


def _binop(m: Machine, f: Frame, node: ast.BinOp) -> Value:
    left, right = m.evaluate(f, node.left), m.evaluate(f, node.right)
    joined = special.operated(m, f, node, left, right) or _concatenate(m, f, node, left, right)
    if joined is not None:
        return joined
    if isinstance(left.const, str) and isinstance(node.op, ast.Mod):
        return computed(left, told(right))
    return rows.operands(counts.arithmetic(m, f, node, left, right), left, right)


def _concatenate(m: Machine, f: Frame, node: ast.BinOp, left: Value, right: Value) -> Value | None:
    """``list + list`` keeps both sides' things, ``dict | dict`` does, ``[x] * 2`` repeats them."""
    site = m.site(f, node)
    if isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)):
        return containers.merged(left, right, site)
    if isinstance(node.op, ast.Mult) and len(left.of(Kind.TUPLE)) == 1:
        return containers.repeated(left.things[0], right, site)
    if not isinstance(node.op, ast.Add):
        return None
    whole = containers.joined_text(left, right) or containers.concatenated(left, right, site, f)
    if whole is not None:
        return whole
    lists = [t for v in (left, right) for t in v.of(*containers.LISTS)]
    if not lists:
        return None
    parts = [containers.everything(t) for t in lists]
    return one(Thing(Kind.ITERATOR, m.site(f, node), inner=join(*parts)))


def _compare(m: Machine, f: Frame, node: ast.Compare) -> Value:
    values = [m.evaluate(f, e) for e in (node.left, *node.comparators)]
    folded = _fold_compare(node, values)
    if folded is not None:
        return constant(folded).but(setting=any(v.setting for v in values))
    plain = isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn))
    entries = measures.compared(v.measure for v in values) if not plain else None
    found = computed(*values, measure=entries)
    # Without gradients there is nothing to cut: what an evaluation computed decides later.
    found = found if f.no_grad else counts.without_gradient(found)
    return found if plain else rows.operands(found, *values)


_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _fold_compare(node: ast.Compare, values: list[Value]) -> bool | None:
    if len(node.ops) != 1:
        return None
    left, right = values
    op = node.ops[0]
    if isinstance(op, (ast.Is, ast.IsNot)) and right.known and right.const is None:
        return _fold_none(isinstance(op, ast.Is), left)
    if not (left.known and right.known):
        return None
    if isinstance(op, (ast.Eq, ast.NotEq)):
        return bool(left.const == right.const) is isinstance(op, ast.Eq)
    ordered, numbers = _ORDERS.get(type(op)), (left.const, right.const)
    if ordered is None or not all(isinstance(number, (int, float)) for number in numbers):
        return None
    return bool(ordered(*numbers))


def _fold_none(is_: bool, left: Value) -> bool | None:
    if left.known:
        return (left.const is None) is is_
    if left.rows and not left.things and rows.by_torch(left):
        made = left.dep(Kind.FORWARD, Kind.UNREAD)  # models may give None
        return None if made else not is_  # torch collates none, and what may be one has no rows
    maker = left.things and all(t.kind not in (Kind.UNKNOWN, Kind.ARGUMENT) for t in left.things)
    return (not is_) if maker and not left.deps else None


def _boolop(m: Machine, f: Frame, node: ast.BoolOp) -> Value:
    values = [m.evaluate(f, e) for e in node.values]
    joined = join(*values)
    return joined.but(const=NO_CONST, deps=joined.deps | _all_deps(values))


def _all_deps(values: list[Value]) -> frozenset[Thing]:
    return frozenset().union(*[flat_deps(v) for v in values])


def _unary(m: Machine, f: Frame, node: ast.UnaryOp) -> Value:
    value = m.evaluate(f, node.operand)
    if isinstance(node.op, ast.Not) and value.known:
        return constant(not value.const).but(setting=value.setting)
    if isinstance(node.op, ast.USub) and isinstance(value.const, (int, float)):
        return constant(-value.const)
    return computed(value, measure=value.measure).but(rows=value.rows)


def _ifexp(m: Machine, f: Frame, node: ast.IfExp) -> Value:
    test = m.evaluate(f, node.test)
    if test.decided:
        return m.evaluate(f, node.body if test.const else node.orelse)
    model = unwrapped_model(node)
    if model is not None:
        value = m.evaluate(f, model)
        if value.of(Kind.MODEL, Kind.WRAPPED):
            m.record(Access(m.tick(), value, m.site(f, model), "module", m.where(f)))
            return wrapping.unwrapped(m, value)
    with m.guarded(f, test, m.site(f, node.test), True):
        body = m.evaluate(f, node.body)
    with m.guarded(f, test, m.site(f, node.test), False):
        orelse = m.evaluate(f, node.orelse)
    return join(body, orelse)


def _lambda(m: Machine, f: Frame, node: ast.Lambda) -> Value:
    return one(m.make_function(f, node, "<lambda>"))


def _joined(m: Machine, f: Frame, node: ast.JoinedStr) -> Value:
    parts = [m.evaluate(f, v.value) for v in node.values if isinstance(v, ast.FormattedValue)]
    plain = all(not isinstance(v, ast.FormattedValue) or _is_plain(v) for v in node.values)
    if not parts:
        return NOTHING
    if plain and all(isinstance(part.const, str) for part in parts):
        return constant(_text(node, [str(part.const) for part in parts]))
    return computed(*map(told, parts))


def _is_plain(node: ast.FormattedValue) -> bool:
    return node.conversion == -1 and node.format_spec is None


def _text(node: ast.JoinedStr, parts: list[str]) -> str:
    """``f"{split}_loader"`` where all that is filled in is known."""
    left = iter(parts)
    known = (v.value if isinstance(v, ast.Constant) else next(left) for v in node.values)
    return "".join(str(part) for part in known)


def _named(m: Machine, f: Frame, node: ast.NamedExpr) -> Value:
    value = m.evaluate(f, node.value)
    f.bind(node.target.id, value)
    return value


def _starred(m: Machine, f: Frame, node: ast.Starred) -> Value:
    return m.evaluate(f, node.value)


def _await(m: Machine, f: Frame, node: ast.Await) -> Value:
    return m.evaluate(f, node.value)


def _yield(m: Machine, f: Frame, node: ast.Yield | ast.YieldFrom) -> Value:
    value = m.evaluate(f, node.value) if node.value is not None else NOTHING
    f.yields.append(value if isinstance(node, ast.Yield) else m.element_of(f, value))
    return NOTHING


def _call(m: Machine, f: Frame, node: ast.Call) -> Value:
    return m.call(f, node)


HANDLERS: dict[type[ast.expr], Callable[[Any, Frame, Any], Value]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.Attribute: attribute_node,
    ast.Subscript: subscript,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Set: _tuple,
    ast.Dict: _dict,
    ast.BinOp: _binop,
    ast.Compare: _compare,
    ast.BoolOp: _boolop,
    ast.UnaryOp: _unary,
    ast.IfExp: _ifexp,
    ast.Lambda: _lambda,
    ast.ListComp: comprehensions.comprehension,
    ast.SetComp: comprehensions.comprehension,
    ast.GeneratorExp: comprehensions.comprehension,
    ast.DictComp: comprehensions.comprehension,
    ast.JoinedStr: _joined,
    ast.NamedExpr: _named,
    ast.Starred: _starred,
    ast.Await: _await,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Call: _call,
}
