"""Expressions, as two ranks evaluate them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ddpify.ranks import (
    assigning,
    calls,
    containers,
    elements,
    inflight,
    iterating,
    mixing,
    naming,
    objects,
    sizes,
)
from ddpify.ranks.absent import note_absent, note_missing, note_unset
from ddpify.ranks.attributes import attribute_of, note_read, settled
from ddpify.ranks.entries import there
from ddpify.ranks.environment import in_environment, note_text
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.logic import chain, negation
from ddpify.ranks.model import RankGuard, RankLoop, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.operations import binary, compare
from ddpify.ranks.origins import IDENTITY, TEXT, Symbol, of_text
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import told_apart
from ddpify.ranks.values import (
    NONE,
    Hashed,
    Many,
    constant,
    differs,
    gathered,
    key_of,
    per_rank,
    symbol,
    text,
)


def evaluate(m: RankMachine, f: RankFrame, node: ast.expr) -> RankValue:
    """The value of an expression for the ranks that are live."""
    handler = _HANDLERS.get(type(node))
    if handler is None:
        return symbol(f"{type(node).__name__}@{f.module.path}:{node.lineno}")
    return handler(m, f, node)


def _constant(m: RankMachine, f: RankFrame, node: ast.Constant) -> RankValue:
    return constant(node.value)


def _name(m: RankMachine, f: RankFrame, node: ast.Name) -> RankValue:
    value = naming.lookup(m, f, node.id)
    note_unset(m, f, value, node)
    return settled(value)


def _attribute(m: RankMachine, f: RankFrame, node: ast.Attribute) -> RankValue:
    return attribute_of(m, f, evaluate(m, f, node.value), node.attr, node)


def _subscript(m: RankMachine, f: RankFrame, node: ast.Subscript) -> RankValue:
    base = evaluate(m, f, node.value)
    note_read(m, f, base, "__getitem__", node)
    note_absent(m, f, base, node)
    end = node.slice.upper if isinstance(node.slice, ast.Slice) else None
    if end is not None and not isinstance(end, ast.Constant):
        m.run.cut.append(base)
    found = elements.item(m, f, base, evaluate(m, f, node.slice), node)
    note_missing(m, f, base, found, node)
    return there(found)


_OF_OBJECTS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


def _compare(m: RankMachine, f: RankFrame, node: ast.Compare) -> RankValue:
    left = evaluate(m, f, node.left)
    results = []
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(m, f, right_node)
        if not isinstance(op, _OF_OBJECTS):
            for operand in (left, right):
                inflight.touch(m, f, operand, node)
        if isinstance(op, (ast.Eq, ast.NotEq)):
            note_text(m, f, node, (left, right))
        if any(t.name == "os.environ" for t in right.things):
            results.append(in_environment(m, left, type(op).__name__))
        else:
            results.append(compare(type(op).__name__, left, right))
        left = right
    return results[0] if len(results) == 1 else chain(True, results)


def _bool(m: RankMachine, f: RankFrame, node: ast.BoolOp) -> RankValue:
    """Operands after the first run only for the ranks that come to them."""
    is_and = isinstance(node.op, ast.And)
    values: list[RankValue] = []
    live, here = m.live, m.here
    for operand in node.values:
        value = evaluate(m, f, operand)
        values.append(value)
        left = m.may(value, m.live, is_and)
        if not left:
            break
        if left != m.live or not value.known:
            m.here = m.here.under(RankGuard(value, operand, f.module, is_and, left))
            m.live = left
    m.live, m.here = live, here
    told = chain(is_and, values)
    if told.known and differs(told):  # the whole is right, though one of them is text
        for one in node.values:
            m.run.texts.pop(f.module.site(one), None)
    return told


_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


def _unary(m: RankMachine, f: RankFrame, node: ast.UnaryOp) -> RankValue:
    value = evaluate(m, f, node.operand)
    if isinstance(node.op, ast.Not):
        return negation(value)
    change = _UNARY.get(type(node.op))
    if change is not None and value.known:
        try:
            atoms = [sizes.apply(change, atom) for atom in value.atoms]
            return replace(value, atoms=(atoms[0], atoms[1]))
        except (TypeError, ValueError):
            return symbol("negative", value)
    made = symbol(f"-{key_of(value)}", value)
    name = type(node.op).__name__
    one, other = (Symbol(made.atoms[0].key, (name, atom)) for atom in value.atoms)
    return replace(made, atoms=(one, other))


def _binary(m: RankMachine, f: RankFrame, node: ast.BinOp) -> RankValue:
    return operation(m, f, node, evaluate(m, f, node.left), evaluate(m, f, node.right))


def operation(
    m: RankMachine, f: RankFrame, node: ast.BinOp, left: RankValue, right: RankValue
) -> RankValue:
    """What an operator makes of its two operands."""
    if isinstance(node.op, ast.Mod) and isinstance(left.constant, str):
        return symbol(f"text@{f.module.path}:{node.lineno}", left, right)
    note_absent(m, f, left, node)
    note_absent(m, f, right, node)
    for operand in (left, right):
        inflight.touch(m, f, operand, node)
    if isinstance(node.op, ast.Mod) and isinstance(right.atoms[0], sizes.Sized):
        m.run.dealt.append((left, f.module.site(node)))
    op = type(node.op).__name__
    own = objects.operated(m, f, op, left, right, node)
    return own or mixing.combined(m, f, node, binary(op, left, right), left, right)


def _conditional(m: RankMachine, f: RankFrame, node: ast.IfExp) -> RankValue:
    test = evaluate(m, f, node.test)
    held: list[tuple[int, RankValue]] = []

    def arm(expression: ast.expr) -> Callable[[], None]:
        return lambda: held.append((m.live, evaluate(m, f, expression)))

    m.branch(f, test, node.test, (arm(node.body), arm(node.orelse)))
    always = m.is_local(test, m.live)
    return per_rank(f"if@{f.module.site(node)}", held, test.origins, always)


def _tuple(m: RankMachine, f: RankFrame, node: ast.Tuple | ast.List | ast.Set) -> RankValue:
    items: list[RankValue] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            value = evaluate(m, f, element.value)
            items += value.items if value.items is not None else (value,)
        else:
            items.append(evaluate(m, f, element))
    number = None if any(isinstance(e, ast.Starred) for e in node.elts) else len(items)
    key = f"[{', '.join(key_of(item) for item in items[:8])}]"
    one = Hashed(key) if isinstance(node, ast.Set) else Many(key, number=number)
    return RankValue((one, one), items=tuple(items))


def _dict(m: RankMachine, f: RankFrame, node: ast.Dict) -> RankValue:
    keys: list[tuple[str, RankValue]] = []
    for name, element in zip(node.keys, node.values, strict=True):
        value = evaluate(m, f, element)
        if name is None:
            keys += value.keys or ((containers.ANY, value),)
        else:
            named = containers.entry_name(evaluate(m, f, name)) or containers.ANY
            keys.append((named, there(value)))
    one = symbol(f"dict@{f.module.path}:{node.lineno}:{node.col_offset}")
    return RankValue(one.atoms, keys=tuple(dict(keys).items()))


def _text(m: RankMachine, f: RankFrame, node: ast.JoinedStr) -> RankValue:
    parts = [evaluate(m, f, p.value) for p in node.values if isinstance(p, ast.FormattedValue)]
    for part in parts:
        inflight.touch(m, f, part, node)
        objects.shown(m, f, part, node)
    if all(isinstance(part.constant, (str, int)) for part in parts) and _is_plain(node):
        held = iter(parts)
        return constant(
            "".join(
                str(p.value) if isinstance(p, ast.Constant) else str(next(held).constant)
                for p in node.values
            )
        )
    key = f"text@{f.module.path}:{node.lineno}:{node.col_offset}"
    ends = (":0", ":1") if any(map(told_apart, parts)) else ("", "")
    first, second = (Symbol(key + ends[r], (TEXT, *_spelled(node, parts, r))) for r in (0, 1))
    deps, origins = gathered(parts)
    return RankValue((first, second), (), deps, of_text(origins))


def _spelled(node: ast.JoinedStr, parts: list[RankValue], rank: int) -> Iterator[Any]:
    """What one rank puts together in an f-string, as it is not known whole."""
    held = iter(parts)
    for one in node.values:
        atom = one.value if isinstance(one, ast.Constant) else next(held).atoms[rank]
        form = one.format_spec if isinstance(one, ast.FormattedValue) else None
        yield atom if form is None else Symbol(f"{text(atom)}:{ast.unparse(form)}")


def _is_plain(node: ast.JoinedStr) -> bool:
    """Whether an f-string formats nothing."""
    held = [p for p in node.values if isinstance(p, ast.FormattedValue)]
    return all(p.format_spec is None and p.conversion == -1 for p in held)


_Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


def _comprehension(m: RankMachine, f: RankFrame, node: _Comprehension) -> RankValue:
    """One element stands for all; of a few words each has its own."""
    kept = {name: f.names[name] for name in _targets(node) if name in f.names}
    live = m.live
    tests: list[RankValue] = []
    words: tuple[RankValue, ...] = ()
    for generator in node.generators:
        over = evaluate(m, f, generator.iter)
        note_absent(m, f, over, generator.iter)
        words = () if len(node.generators) > 1 or generator.ifs else iterating.words_in(over)
        loop = RankLoop(node, f.module, over, False)
        if not words:
            assigning.assign(m, f, generator.target, iterating.element(m, f, over, loop))
            _note(m, node, loop)
        for test in generator.ifs:
            tests.append(evaluate(m, f, test))
    made: list[tuple[RankValue, RankValue]] = []
    for word in words or (None,):
        if word is not None:
            assigning.assign(m, f, node.generators[0].target, word)
        made.append(_entry(m, f, node))
    m.live = live
    for name, value in kept.items():
        m.write(f.names, name, value)
    one = symbol(f"each@{f.module.path}:{node.lineno}:{node.col_offset}", over)
    picked = frozenset(o for test in tests for o in test.origins if o.kind in IDENTITY)
    if isinstance(node, ast.SetComp):
        one = replace(one, atoms=(Hashed(key_of(one)), Hashed(key_of(one))))
    elif isinstance(node, (ast.ListComp, ast.DictComp)) and len(node.generators) == 1:
        one = replace(one, atoms=iterating.many(key_of(one), over, bool(tests)))
    if isinstance(node, ast.DictComp):
        names = [containers.entry_name(key) or containers.ANY for key, _ in made]
        held = zip(names, (value for _, value in made), strict=True)
        whole = RankValue(one.atoms, keys=tuple(dict(held).items()))
        return whole if words else replace(whole, deps=one.deps, origins=over.origins | picked)
    # what is in `over` is in the elements, where it was not made the same on all ranks
    items = tuple(replace(value, origins=value.origins | picked) for _, value in made)
    return RankValue(one.atoms, (), one.deps, over.origins | picked, items)


def _note(m: RankMachine, node: _Comprehension, loop: RankLoop) -> None:
    """Keep a comprehension that is a loop over one thing."""
    at_once = isinstance(node, (ast.ListComp, ast.DictComp, ast.SetComp))
    if at_once and len(node.generators) == 1 and not node.generators[0].ifs:
        m.run.comprehended.append(loop)


def _entry(m: RankMachine, f: RankFrame, node: Any) -> tuple[RankValue, RankValue]:
    """What a comprehension makes in one turn, and under which name."""
    if isinstance(node, ast.DictComp):
        return evaluate(m, f, node.key), evaluate(m, f, node.value)
    return NONE, evaluate(m, f, node.elt)


def _targets(node: Any) -> set[str]:
    return {
        one.id
        for generator in node.generators
        for one in ast.walk(generator.target)
        if isinstance(one, ast.Name)
    }


def _lambda(m: RankMachine, f: RankFrame, node: ast.Lambda) -> RankValue:
    return naming.make_function(m, f, FunctionDefinition("<lambda>", node, f.module))


def _named(m: RankMachine, f: RankFrame, node: ast.NamedExpr) -> RankValue:
    value = evaluate(m, f, node.value)
    assigning.assign(m, f, node.target, value)
    return value


def _inner(m: RankMachine, f: RankFrame, node: ast.Await | ast.Starred) -> RankValue:
    return evaluate(m, f, node.value)


def _yield(m: RankMachine, f: RankFrame, node: ast.Yield | ast.YieldFrom) -> RankValue:
    value = evaluate(m, f, node.value) if node.value is not None else constant(None)
    if f.on_yield is not None:
        f.on_yield(value)
    elif isinstance(node, ast.YieldFrom) and value.items:
        f.yielded += value.items
    else:
        f.yielded.append(value)
        f.delegated = value if isinstance(node, ast.YieldFrom) else None
    return symbol("sent")


def _slice(m: RankMachine, f: RankFrame, node: ast.Slice) -> RankValue:
    parts = [
        NONE if part is None else evaluate(m, f, part)
        for part in (node.lower, node.upper, node.step)
    ]
    return replace(symbol("slice", *parts), items=tuple(parts))


def _call(m: RankMachine, f: RankFrame, node: ast.Call) -> RankValue:
    return calls.call(m, f, node)


_HANDLERS: dict[type[ast.expr], Callable[[RankMachine, RankFrame, Any], RankValue]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.IfExp: _conditional,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Set: _tuple,
    ast.Dict: _dict,
    ast.JoinedStr: _text,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named,
    ast.Await: _inner,
    ast.Starred: _inner,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Slice: _slice,
    ast.Call: _call,
}
