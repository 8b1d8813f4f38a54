"""Sums that a loop adds up and what they are divided by, as they are written in one function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddpify.ranks.model import RankCall, RankLoop, RankThing
from ddpify.ranks.origins import Symbol
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import scope, scope_nodes
from ddpify.site import Site

_SIZES = frozenset({"len", "size", "numel", "shape", "nelement"})
_PASSED_ON = frozenset({"tensor", "as_tensor", "float", "item", "to", "cuda", "detach", "clone"})


@dataclass(frozen=True)
class Added:
    """``name += value`` in a loop over a loader; a list that grows counts as ``len(name) += 1``."""

    name: str
    node: ast.AST
    value: ast.expr
    loop: RankLoop
    loader: RankThing

    @property
    def site(self) -> Site:
        """Where it is added."""
        return self.loop.module.site(self.node)

    @property
    def counts(self) -> bool:
        """Whether it is a number of samples: ``len(x)``, ``x.size(0)``, ``1``."""
        return isinstance(self.value, ast.Constant) or _is_size(self.value)

    @property
    def selects(self) -> bool:
        """Whether it counts what a condition holds for: ``(target != pad).sum()``."""
        return _selects(self.value, self.loop)


@dataclass(frozen=True, eq=False)
class Quotient:
    """``total / count`` or ``total /= count`` in the function in which ``call`` stands.

    Both are names: ``float(total.item()) / counts[0]`` is ``total / counts``; ``by`` is the
    expression of the second.
    """

    call: RankCall
    node: ast.BinOp | ast.AugAssign
    total: str
    count: str
    by: ast.expr

    @property
    def site(self) -> Site:
        """Where it stands."""
        return self.call.module.site(self.node)

    def takes(self, one: Added, *names: str) -> bool:
        """Whether the loop of a sum is in the same function, and no call has got these since."""
        function = scope(self.call)
        here = any(node is one.node for node in ast.walk(function))
        return here and not any(
            _changed_between(function, name, one.loop.node, self.node) for name in names
        )


def is_quotient(atom: Any) -> bool:
    """Whether a value was divided by something of which the number is not known."""
    divided = isinstance(atom, Symbol) and atom.parts[:1] == ("Div",)
    return divided and isinstance(atom.parts[2], Symbol)


def quotients(call: RankCall) -> Iterator[Quotient]:
    """Those in the function, or at the top level, in which a call stands."""
    for node in scope_nodes(call):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield _quotient(call, node, node.left, node.right)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield _quotient(call, node, node.target, node.value)


def _quotient(
    call: RankCall, node: ast.BinOp | ast.AugAssign, total: ast.expr, count: ast.expr
) -> Quotient:
    total, by = _base(total), _base(count)
    return Quotient(call, node, ast.unparse(total), ast.unparse(by), by)


def quotients_given(call: RankCall, position: int, keyword: str) -> Iterator[Quotient]:
    """Those that an argument is, or was last set to, here or by who gave it to this function."""
    given = call.node_of(position, keyword)
    if given is None:
        return
    written = _written(call, given)
    yield from (one for one in quotients(call) if one.node in written)
    caller = call.stack[-1] if call.stack else None
    if caller is None or caller.target is None or caller.target is not call.function:
        return
    if any(isinstance(node, (ast.BinOp, ast.AugAssign)) for node in written):
        return  # it may be weighted
    used = {node.id for node in written if isinstance(node, ast.Name)}
    names = caller.target.parameters[caller.receiver is not None :]
    for number, name in enumerate(names):
        outer = caller.node_of(number, name) if name in used else None
        if outer is not None:
            made = _written(caller, outer)
            yield from (one for one in quotients(caller) if one.node in made)


def _written(call: RankCall, given: ast.expr) -> set[ast.AST]:
    """An argument's expression, and those that its name was last given."""
    found: set[ast.AST] = set(ast.walk(given))
    name = ast.unparse(given)
    for node in scope_nodes(call):
        before = getattr(node, "lineno", 0) < call.node.lineno
        if before and isinstance(node, ast.Assign):
            if any(ast.unparse(target) == name for target in node.targets):
                found |= set(ast.walk(node.value))
        elif before and isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name:
            found.add(node)
    return found


def loops_over(run: Run) -> Iterator[tuple[RankLoop, RankThing]]:
    """Loops over the batches of loaders, each once."""
    done: set[tuple[ast.AST, RankThing]] = set()
    for loop in run.loops:
        for loader in iterated(loop):
            if (loop.node, loader) not in done:
                done.add((loop.node, loader))
                yield loop, loader


def added(loop: RankLoop, loader: RankThing) -> Iterator[Added]:
    """What the loop adds up."""
    for node in ast.walk(loop.node):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield Added(ast.unparse(_base(node.target)), node, node.value, loop, loader)


def collected(loop: RankLoop, loader: RankThing) -> Iterator[Added]:
    """The lengths of the lists that the loop fills."""
    for node in ast.walk(loop.node):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in ("append", "extend"):
            name = f"len({ast.unparse(called.value)})"
            yield Added(name, node, ast.Constant(1), loop, loader)


def _base(node: ast.expr) -> ast.expr:
    """``totals`` of ``totals[0]``, ``hits`` of ``float(hits.item())``."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in _PASSED_ON:
                return node
            node = node.args[0] if node.func.attr in ("tensor", "as_tensor") else node.func.value
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _PASSED_ON:
            node = node.args[0]
        else:
            return node


def counts_samples(loop: RankLoop) -> bool:
    """Whether a loop adds up how many samples the batches have, or weighs by it."""
    sizes = {
        target.id
        for node in ast.walk(loop.node)
        if isinstance(node, ast.Assign) and _is_size(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def size(node: ast.expr) -> bool:
        return _is_size(node) or (isinstance(node, ast.Name) and node.id in sizes)

    return any(size(value) for node in ast.walk(loop.node) for value in _taken(node))


def _taken(node: ast.AST) -> Iterator[ast.expr]:
    """What is added to something, or handed on: to a meter, in a tuple, in a tensor."""
    if isinstance(node, ast.AugAssign):
        yield node.value
        if isinstance(node.value, ast.BinOp):
            yield node.value.right
    elif isinstance(node, ast.Call):
        yield from (*node.args, *(keyword.value for keyword in node.keywords))
    elif isinstance(node, (ast.Tuple, ast.List)):
        yield from node.elts


def _is_size(value: ast.expr) -> bool:
    """``len(x)``, ``x.size(0)``, ``x.shape[0]``."""
    node = value.func if isinstance(value, ast.Call) else value
    node = node.value if isinstance(node, ast.Subscript) else node
    word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return word in _SIZES


def _selects(value: ast.expr, loop: RankLoop) -> bool:
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if value.func.attr in ("item", "float", "int", "long"):
        return _selects(value.func.value, loop)
    if value.func.attr not in ("sum", "count_nonzero"):
        return False
    counted = [value.func.value, *_named(value.func.value, loop)]
    compared = [n for one in counted for n in ast.walk(one) if isinstance(n, ast.Compare)]
    return any(
        isinstance(n.ops[0], (ast.NotEq, ast.Gt, ast.Lt, ast.GtE, ast.LtE)) for n in compared
    )


def _named(counted: ast.expr, loop: RankLoop) -> Iterator[ast.expr]:
    """What the loop gives a name that is counted: ``mask = y != pad``."""
    if isinstance(counted, (ast.Name, ast.Attribute)):
        name = ast.unparse(counted)
        for node in ast.walk(loop.node):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                yield node.value


def _changed_between(function: ast.AST, name: str, after: ast.AST, before: ast.AST) -> bool:
    """Whether a call may have replaced or changed ``name`` between two lines: it may be reduced."""
    first, last = getattr(after, "end_lineno", 0), getattr(before, "lineno", 0)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and first < node.lineno < last:
            given = [*node.args, *(k.value for k in node.keywords)]
            if any(ast.unparse(n) == name for one in given for n in ast.walk(one) if _path(n)):
                return True
    return False


def _path(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))
