"""Loops inside a batch: how often they go round, and whether that is the same on all ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Loop
from ddpify.facts.values import Measure, Value
from ddpify.rules.base import Finding, Severity
from ddpify.rules.edits import is_local
from ddpify.rules.examples import SINGLE, changed
from ddpify.source import Site

_PARTS = ("split", "chunk", "tensor_split", "split_with_sizes")  # of a batch, of which all have one


def uneven(facts: Facts) -> Iterable[Finding]:
    """Yield one finding per loop with a backward whose rounds are a rank's own samples."""
    for one in facts.training:
        loops = one.backward.where.loops()
        outer = [n for n, loop in enumerate(loops) if loaders_in(loop.over)]
        for loop in loops[: outer[0]] if outer else ():
            if any(_decides(facts, part) for part in _iterated(facts, loop)):
                yield Finding(
                    "DDP404",
                    loop.site,
                    "this loop steps as often as a rank's own samples say; ranks that differ hang",
                    Severity.ERROR,
                    (),
                    "step once for a batch, or as often on every rank",
                    ((one.backward.site, "gradients are averaged here, with all ranks"),),
                )


def is_the_same_in_all(facts: Facts, loop: Loop, test: Site) -> bool:
    """Whether a condition is a setting, so that all rounds are alike: `if args.own_step:`."""
    tree = facts.tree(test)
    node = tree.expression(test)
    around = facts.tree(loop.site).statement(loop.site)
    if node is None or around is None:
        return False
    names = {n.id for n in tree.nodes(around) if isinstance(n, ast.Name) and _is_set(n)}
    fields = {
        n.attr
        for one in facts.trees.values()
        for n in one.nodes()
        if isinstance(n, ast.Attribute) and _is_set(n)
    }
    read = list(ast.walk(node))
    return not (
        any(isinstance(n, ast.Call | ast.Subscript) for n in read)
        or names & {n.id for n in read if isinstance(n, ast.Name)}
        or fields & {n.attr for n in read if isinstance(n, ast.Attribute)}
    )


def _is_set(node: ast.Name | ast.Attribute) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _iterated(facts: Facts, loop: Loop) -> Iterator[Site]:
    """What a loop goes through: of ``zip(inputs, targets)`` each."""
    tree = facts.tree(loop.header)
    todo = [tree.expression(loop.header)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _PARTS:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            todo += node.args
        elif node is not None:
            yield tree.site(node)


def _decides(facts: Facts, site: Site) -> bool:
    value = facts.values.get(site)
    return value is not None and is_local(facts, value) and not _is_batch(value)


def _is_batch(value: Value) -> bool:
    """Whether it has an entry per sample: of samples every rank has as many."""
    return value.rows or value.measure in (Measure.SAMPLES, Measure.COUNT)


_STEP = (
    "            adam.zero_grad()\n"
    "            objective = nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n"
    "            objective.backward()\n"
    "            adam.step()\n"
)
_INNER = _STEP.replace("            ", "                ").replace("(signal.", "(s.")
_INNER = _INNER.replace("label.", "l.")
_TURN = "            signal.transpose_(0, 1)\n            label.transpose_(0, 1)\n"
# as many steps as a sample has parts; as many as the author says
OWN_ROUNDS = changed(
    SINGLE,
    (_STEP, f"{_TURN}            for s, l in zip(signal, label):  # DDP404\n{_INNER}"),
)
EQUAL_ROUNDS = changed(
    SINGLE,
    (_STEP, f"            for s, l in zip(signal.chunk(2), label.chunk(2)):\n{_INNER}"),
)
