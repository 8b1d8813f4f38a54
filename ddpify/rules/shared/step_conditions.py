"""What decides whether a round of a loop steps, as it can be asked before the round's forward.

What statements in between do to a counter or a flag is put into the condition::

    count += 1
    if count % 4 == 0:      # before both: (count + 1) % 4 == 0
        optimizer.step()

Where a step after the loop takes what the last window has left, the last round is asked for, too.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import OF_ONE_RANK, Kind, Thing
from ddpify.rules.edits import is_local
from ddpify.source import Site

MOST = 80  # characters of a condition that is said twice
_OPERATORS = (ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)
_NODES = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare)
_CUT_SHORT = (ast.Break, ast.Continue, ast.Return)


@dataclass(frozen=True)
class StepWindow:
    """A loop of whose rounds some end with a step, or after the last of which there is one.

    ``block`` are the statements of a round up to where ``asked`` decides, ``synced`` those that
    only come with a step. ``leftover``: other steps may come after the loop.
    """

    tree: Tree
    rounds: Site
    asked: ast.expr
    block: Sequence[ast.stmt]
    synced: Sequence[ast.stmt]
    leftover: bool = False


def window_of(facts: Facts, loop: TrainingLoop) -> StepWindow | None:
    """The window of a loop's backward, where one condition that is alike on all ranks ends it."""
    if len([one for one in facts.training if one.batch is loop.batch]) > 1:
        return None
    inner = loop.backward.where.loops()[0]
    if steps_after(facts, loop):
        return _of_all_rounds(facts, inner)
    return _of_some_rounds(facts, loop, [s for s in facts.steps if loop.batch in s.where.loops()])


def steps_after(facts: Facts, loop: TrainingLoop) -> bool:
    """Whether the steps come after the last round of the loop that goes forward and backward."""
    inner = loop.backward.where.loops()[0]
    if not any(inner in forward.call.where.loops() for forward in facts.training_forwards):
        return False
    steps = [s for s in facts.steps if loop.batch in s.where.loops() or _comes_after(inner, s)]
    return bool(steps) and all(_comes_after(inner, s) for s in steps)


def _comes_after(loop: Loop, step: Call) -> bool:
    """Whether a step is taken after the last round of a loop, under the same conditions."""
    same = loop.frame is step.where.frame and loop.parent is step.where.loop
    later = step.site.path == loop.site.path and step.site.span.line > loop.site.span.end_line
    return same and later and len(step.where.guards) == loop.held


def _of_all_rounds(facts: Facts, inner: Loop) -> StepWindow | None:
    """``for k in range(4):`` before a step: the last round is the one that counts."""
    tree = facts.tree(inner.site)
    node = tree.statement(inner.site)
    asked = _last_round(tree, inner)
    if not isinstance(node, ast.For) or asked is None:
        return None
    alike = not is_local(facts, inner.over) and not inner.over.dep(*OF_ONE_RANK)
    return StepWindow(tree, inner.site, asked, node.body, ()) if alike else None


def _of_some_rounds(facts: Facts, loop: TrainingLoop, steps: Sequence[Call]) -> StepWindow | None:
    mine = {t for s in steps for t in _stepped(s)}
    others = [s for s in facts.steps if s not in steps and mine.intersection(_stepped(s))]
    held = {g.site for g in loop.backward.where.guards}
    tests = {g.site: g for s in steps for g in s.where.guards if g.site not in held}
    if len(tests) != 1 or not all({g.site for g in s.where.guards} - held for s in steps):
        return None
    ((site, guard),) = tests.items()
    tree = facts.tree(site)
    asked = tree.expression(site)
    test = tree.parent(asked) if asked is not None else None
    body = getattr(tree.parent(test), "body", []) if test is not None else []
    if is_local(facts, guard.test) or guard.test.dep(*OF_ONE_RANK) or test not in body:
        return None
    place = body.index(test) + 1
    match test:
        case ast.If(test=condition, orelse=[]) if guard.holds:
            found = condition, [test]
        case ast.If(test=condition, body=[ast.Continue()], orelse=[]):
            found = _not(condition), body[place:]
        case _:
            return None
    return StepWindow(tree, loop.batch.site, found[0], body[:place], found[1], bool(others))


def _not(test: ast.expr) -> ast.expr:
    """``(i + 1) % 4 == 0`` of ``(i + 1) % 4 != 0``, which is how it is read best."""
    match test:
        case ast.Compare(left, [ast.NotEq()], right):
            return ast.Compare(left, [ast.Eq()], right)
        case ast.UnaryOp(ast.Not(), inner):
            return inner
    return ast.UnaryOp(ast.Not(), test)


def _stepped(step: Call) -> Iterator[Thing]:
    """The optimizer, and the scaler that steps it: ``scaler.step(optimizer)``."""
    for value in (step.receiver, *step.args):
        yield from value.things if value is not None else ()


def asked_before(facts: Facts, window: StepWindow, between: Sequence[ast.stmt]) -> str | None:
    """A window's condition as it is before some statements; None where that is not certain."""
    between = [one for one in between if one not in window.synced]
    test = _put_back(window.asked, between)
    if test is None or not _is_plain(test) or _is_set_by_others(facts, window.tree, test, between):
        return None
    if window.leftover:
        loop = next((one.batch for one in facts.training if one.batch.site == window.rounds), None)
        last = _last_round(window.tree, loop) if loop is not None else None
        test = ast.BoolOp(ast.Or(), [test, last]) if last is not None else None
    text = ast.unparse(test) if test is not None else ""
    return text if 0 < len(text) <= MOST else None


def _put_back(test: ast.expr, between: Sequence[ast.stmt]) -> ast.expr | None:
    """A condition with what these statements bind in it; None where it is bound in another way."""
    for one in reversed(between):
        if _changed(one) & _wholes(test):
            return None  # `losses.append(loss)` before `if len(losses) % 4 == 0`
        names = stored(one) & {ast.unparse(n) for n in _read(test)}
        if not names:
            continue
        name, value = _bound(one)
        if names != {name} or value is None:
            return None
        test = cast("ast.expr", _Put(name, value).visit(copy.deepcopy(test)))
    return test


def _bound(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """``count`` and ``count + 1`` of ``count += 1``; ``last`` and its test of ``last = …``."""
    if isinstance(statement, ast.AugAssign):
        name = ast.unparse(statement.target)
        before = ast.parse(name, mode="eval").body
        return name, ast.BinOp(before, statement.op, statement.value)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return ast.unparse(statement.targets[0]), statement.value
    return "", None


class _Put(ast.NodeTransformer):
    """Puts an expression where a name or an attribute is read."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit(self, node: ast.AST) -> ast.AST:
        named = isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == self.name
        return self.value if named else self.generic_visit(node)


def _is_plain(test: ast.expr) -> bool:
    """Whether what is asked are numbers, and comparing them changes nothing."""
    kinds = (*_NODES, *_OPERATORS)
    return all(isinstance(n, kinds) or _is_length(n) for n in ast.walk(test))


def _is_length(node: ast.AST) -> bool:
    """``len(loader)``"""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "len"


def _is_set_by_others(
    facts: Facts, tree: Tree, test: ast.expr, between: Sequence[ast.stmt]
) -> bool:
    """Whether what a condition reads may be set by functions that run in these statements.

    Or by another name in one of them. A property is a function, too.
    """
    fields = {n.attr for n in _read(test) if isinstance(n, ast.Attribute)}
    names = {ast.unparse(n) for n in _read(test)}
    sites = [tree.site(one) for one in between]
    calls = [c for c in facts.calls if any(s.within(one) for s in c.way for one in sites)]
    entered = [c.target.node for c in calls if c.target is not None]
    if any(_sets(node, fields, names) for node in entered) or _properties(facts, fields):
        return True
    set_here = {n for one in between for n in stored(one)} - names
    return any(name.rpartition(".")[2] in fields for name in set_here if "." in name)


def _sets(function: ast.AST, fields: set[str], names: set[str]) -> bool:
    shared = {
        name
        for n in ast.walk(function)
        if isinstance(n, (ast.Global, ast.Nonlocal))
        for name in n.names
    }
    ends = {name.rpartition(".")[2] for name in stored(function) if "." in name}
    ends |= {name.rpartition(".")[2] for name in _changed(function) if "." in name}
    return bool(shared & names or ends & fields)


def _properties(facts: Facts, fields: set[str]) -> bool:
    nodes = (n for tree in facts.trees.values() for n in tree.nodes())
    return any(isinstance(n, ast.FunctionDef) and n.name in fields for n in nodes)


def _last_round(tree: Tree, loop: Loop) -> ast.expr | None:
    """Whether a round is the last, of a loop that counts them and of which no round is cut.

    ``i == len(loader) - 1`` of ``for i, … in enumerate(loader)``, ``k == 3`` of ``range(4)``.
    """
    match tree.statement(loop.site):
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(number), _]),
            iter=ast.Call(ast.Name("enumerate"), [over], []),
            body=body,
        ):
            last = _number_of_last(over, loop)
        case ast.For(
            target=ast.Name(number), iter=ast.Call(ast.Name("range"), [over], []), body=body
        ):
            counted = over.value if isinstance(over, ast.Constant) else None
            last = str(counted - 1) if isinstance(counted, int) else f"{ast.unparse(over)} - 1"
        case _:
            return None
    cut = any(isinstance(n, _CUT_SHORT) for one in body for n in ast.walk(one))
    read = {number, *_wholes(over)}
    if not last or cut or any((stored(s) | _changed(s)) & read for s in body):
        return None
    return ast.parse(f"{number} == {last}", mode="eval").body


def _number_of_last(over: ast.expr, loop: Loop) -> str:
    """``len(loader) - 1``, also behind a progress bar."""
    counted = [t for thing in loop.over.things for v in thing.over for t in v.things]
    if isinstance(over, ast.Call) and all(t.kind is Kind.PROGRESS for t in counted):
        over = over.args[0] if over.args else over
        counted = [t for bar in counted if bar.inner is not None for t in bar.inner.things]
    known = counted and all(t.kind in (Kind.LOADER, Kind.TUPLE) for t in counted)
    named = isinstance(over, (ast.Name, ast.Attribute))
    return f"len({ast.unparse(over)}) - 1" if known and named else ""


def _wholes(test: ast.expr) -> set[str]:
    """``self.seen`` and ``count``, and not the ``self`` of it, whose methods are read."""
    read = _read(test)
    owners = {n.value for n in read if isinstance(n, ast.Attribute)}
    return {ast.unparse(n) for n in read if n not in owners}


def _changed(node: ast.AST) -> set[str]:
    """What a method of is called, or an entry of is bound: it may be longer then."""
    calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    owners = [f.value for f in calls if isinstance(f, ast.Attribute)]
    parts = (n for n in ast.walk(node) if isinstance(n, ast.Subscript))
    owners += [n.value for n in parts if not isinstance(n.ctx, ast.Load)]
    return {ast.unparse(owner) for owner in owners}


def _read(test: ast.expr) -> list[ast.Name | ast.Attribute]:
    return [n for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute))]


def stored(node: ast.AST) -> set[str]:
    """The names and attributes that are bound in a statement, as they are written."""
    kinds = (ast.Name, ast.Attribute)
    found = (n for n in ast.walk(node) if isinstance(n, kinds) and isinstance(n.ctx, ast.Store))
    return {ast.unparse(n) for n in found}
