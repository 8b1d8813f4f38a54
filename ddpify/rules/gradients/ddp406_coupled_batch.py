"""DDP406: the loss compares the samples of a batch with each other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.edits import is_local
from ddpify.rules.examples import SCRIPT, SINGLE, changed
from ddpify.settings import Settings

STEP = "            objective.backward()"
PRODUCTS = ("torch.mm", "torch.matmul")


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per product of a batch of outputs with a transposed batch."""
    trained = {forward.output.born for forward in facts.training_forwards}
    for tree in facts.trees.values():
        for node, operands in _products(tree):
            values = [facts.values.get(tree.site(operand)) for operand in operands]
            if any(v is None or v.measure is not Measure.SAMPLES for v in values):
                continue
            outputs = {d.born for v in values if v for d in v.dep(Kind.FORWARD)}
            if outputs & trained and all(v and is_local(facts, v) for v in values):
                yield Finding(
                    "DDP406",
                    tree.site(node),
                    "the loss compares all samples of a batch: a rank would see 1/N of the pairs",
                    Severity.ERROR,
                    (),
                    "gather the outputs of all ranks with gradient before this product",
                )


def _products(tree: Tree) -> Iterator[tuple[ast.expr, tuple[ast.expr, ast.expr]]]:
    """``a @ b.t()`` and ``torch.mm(a, b.T)``: one row and one column per sample."""
    for node in tree.nodes():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            pair = (node.left, node.right)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in PRODUCTS:
            if len(node.args) != 2:
                continue
            pair = (node.args[0], node.args[1])
        else:
            continue
        if any(_transposed(operand) for operand in pair):
            yield node, pair


def _transposed(operand: ast.expr) -> bool:
    """``x.t()``, ``x.T``, ``x.transpose(1, 0)``: the samples become the columns."""
    for node in ast.walk(operand):
        if isinstance(node, ast.Attribute) and node.attr in ("t", "T"):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".transpose"):
            axes = {a.value for a in node.args if isinstance(a, ast.Constant)}
            if axes == {0, 1}:
                return True
    return False


RULE = Rule(
    "DDP406",
    "coupled-batch",
    "A contrastive loss has one term per pair of samples, a dice loss divides sums over the batch."
    " Over a rank's share of the batch that is no error, but another objective. The outputs of all"
    " ranks have to be gathered, and the gradient has to flow back through the gather.",
    "PATTERNS B1.7; BUGS G15 (open_clip#616, vissl PR#123)",
    check,
    bad=(
        changed(
            SINGLE,
            (
                STEP,
                "            z = net(signal.cuda())\n            pairs = z @ z.t()  # DDP406\n"
                "            objective = pairs.logsumexp(1).mean()\n" + STEP,
            ),
        ),
        changed(
            SINGLE,
            (
                STEP,
                "            z = torch.cat([net(signal.cuda()), net(-signal.cuda())])\n"
                "            pairs = torch.mm(z, z.transpose(1, 0))  # DDP406\n"
                "            objective = pairs.logsumexp(1).mean()\n" + STEP,
            ),
        ),
    ),
    good=(
        SCRIPT,
        changed(
            SINGLE,
            (
                STEP,
                "            table = torch.ones(3, 4)\n"
                "            objective = objective + (net(signal.cuda()) @ table.t()).mean()\n"
                + STEP,
            ),
        ),
    ),
)
