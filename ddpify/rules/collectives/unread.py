"""What ranks put together and nothing reads: a copy that is dropped, a result that is not taken.

avg = p.detach().clone()
dist.all_reduce(avg)                    # p is what it was
avg /= world
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.mixing import OTHERS
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import DATA
from ddpify.ranks.prepared import is_model
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST
from ddpify.rules.shared.averaged_by_hand import is_gradient
from ddpify.rules.shared.syntax import parents, scope
from ddpify.rules.shared.wrapped import parameters_of

_FILLS: Final = tuple(
    f"{DIST}{one}"
    for one in "all_reduce reduce broadcast all_gather all_gather_into_tensor".split()
)
# What makes memory of its own.
_FRESH: Final = frozenset(
    "clone stack cat tensor deepcopy sum mean zeros_like empty_like div mul add sub divide multiply"
    " true_divide _flatten_dense_tensors parameters_to_vector".split()
)
_SCALES: Final = frozenset("div_ mul_ true_divide_ wait".split())
# Lightning's reduce the tensor itself.
_IN_PLACE: Final = {
    "lightning.fabric.Fabric.all_reduce",
    "lightning.pytorch.Trainer.strategy.reduce",
}
_NUMBERS: Final = frozenset("item tolist float int print len".split())


def unread(run: Run) -> Iterator[RankCall]:
    """Collectives on what a model has or has computed, whose result nothing reads."""
    for call in run.named(*_FILLS):
        shared = collective(call)
        value = shared.given("tensor") or shared.given("input_tensor") if shared else None
        node = shared.node(shared.filled) if shared is not None else None
        if value is None or not call.everywhere or not _is_of_model(value):
            continue
        if not call.alone and not (node is not None and _is_only_awaited(call)):
            continue
        if call.alone and isinstance(node, ast.Name) and _is_dropped(call, node.id):
            yield call
        elif node is not None and _is_temporary(node) and _is_meant_for(value, node):
            yield call  # `all_reduce(torch.tensor(correct))`, `all_reduce(p.grad / world)`
    for call in run.named(*OTHERS.keys() - _IN_PLACE):
        if call.alone and call.args and _is_of_model(call.args[0]):
            yield call


def _is_temporary(node: ast.expr) -> bool:
    """Whether an expression makes memory of its own, which nothing else can name."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr.endswith("_"):
        return _is_temporary(function.value)  # `p.grad.clone().div_(world)`
    return isinstance(node, (ast.BinOp, ast.Call)) and _is_fresh(node)


def _is_only_awaited(call: RankCall) -> bool:
    """Whether what an asynchronous call gives is no way to its tensor in this file."""
    text = call.module.source.text
    begun = any(one.arg == "async_op" for one in call.node.keywords)
    return begun and "get_future(" not in text and ".result(" not in text


def _is_meant_for(value: RankValue, node: ast.expr) -> bool:
    """Whether it is no copy made to wait for the others with: ``all_reduce(loss.clone())``."""
    computed = not isinstance(node, ast.Call) or bool(node.args)
    return computed or bool(parameters_of(value)) or is_gradient(value)


def _is_of_model(value: RankValue) -> bool:
    """Whether a tensor is a model's, or computed with one: not made up to measure a network."""
    if parameters_of(value) or is_gradient(value):
        return True
    if any(origin.kind == DATA for origin in value.all_origins):
        return True
    forwards = (t.call for t in value.sources() if t.call and t.call.method == "__call__")
    return any(c.receiver is not None and any(map(is_model, c.receiver.things)) for c in forwards)


def _is_dropped(call: RankCall, name: str) -> bool:
    """Whether a name of the function is memory of its own, which is not read behind the call."""
    body = scope(call)
    above = parents(body)
    statement = _statement(call.node, above)
    if call.function is None or statement is None:
        return False
    block = _block(above.get(statement), statement)
    made = [
        one
        for one in block[: block.index(statement)]
        if isinstance(one, ast.Assign) and any(_names(t, name) for t in one.targets)
    ]
    if not made or len(made[-1].targets) != 1 or not _is_fresh(made[-1].value):
        return False
    first, last = made[-1].lineno, call.node.lineno
    named = (n for n in ast.walk(body) if isinstance(n, ast.Name) and n.id == name)
    reads = [n for n in named if not isinstance(n.ctx, ast.Store)]
    if not _is_meant(body, name, reads, first, last) or _is_shared(body, name):
        return False  # made up, or sent to wait for the others
    again = _is_repeated(statement, above)
    return all(
        (
            _scales(n, above)
            if n.lineno > last
            else _is_within(n, call.node, above)
            or (not again if n.lineno < first else _is_number(n, above))
        )
        for n in reads
    )


def _is_meant(body: ast.AST, name: str, reads: list[ast.Name], first: int, last: int) -> bool:
    """Whether a number is taken out of it before, or it is divided afterwards."""
    scaled = (n.target for n in ast.walk(body) if isinstance(n, ast.AugAssign))
    later = any(_names(n, name) and n.lineno > last for n in scaled)
    return later or any(first < n.lineno != last for n in reads)


def _is_within(node: ast.AST, outer: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    while node is not outer and node in above:
        node = above[node]
    return node is outer


def _is_repeated(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether what stands above a statement may be done behind it, in the next round."""
    while node in above:
        node = above[node]
        if isinstance(node, (ast.For, ast.While)):
            return True
    return False


def _is_shared(body: ast.AST, name: str) -> bool:
    """Whether another function may read it, at another time."""
    for one in ast.walk(body):
        if isinstance(one, (ast.Global, ast.Nonlocal)) and name in one.names:
            return True
        inner = one is not body and isinstance(one, (ast.FunctionDef, ast.Lambda))
        if inner and any(_names(n, name) for n in ast.walk(one)):
            return True
    return False


def _names(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_fresh(value: ast.expr) -> bool:
    if isinstance(value, (ast.BinOp, ast.ListComp)):
        return True
    function = value.func if isinstance(value, ast.Call) else None
    word = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return word in _FRESH


def _statement(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> ast.stmt | None:
    while not isinstance(node, ast.stmt):
        if node not in above:
            return None
        node = above[node]
    return node


def _block(holder: ast.AST | None, statement: ast.stmt) -> list[ast.stmt]:
    blocks = (getattr(holder, name, []) for name in ("body", "orelse", "finalbody"))
    return next((one for one in blocks if isinstance(one, list) and statement in one), [statement])


def _scales(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """``avg /= n`` is a store; ``avg.div_(n)``, ``del avg``."""
    holder = above.get(node)
    if isinstance(holder, ast.Delete):
        return True
    called = above.get(holder) if isinstance(holder, ast.Attribute) else None
    return (
        isinstance(holder, ast.Attribute)
        and holder.attr in _SCALES
        and isinstance(called, ast.Call)
        and isinstance(above.get(called), ast.Expr)
    )


def _is_number(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a statement before takes but a number out of it: ``result = avg.item()``."""
    while node in above and not isinstance(node, ast.stmt):
        node = above[node]
        if isinstance(node, ast.Call):
            f = node.func
            word = f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")
            if word in _NUMBERS:
                return True
    return False
