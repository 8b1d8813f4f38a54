"""Models that see how far their batch was filled up: a rank fills to the longest of its share.

    def forward(self, tokens):
        return self.out(self.embedding(tokens).mean(1))   # over the filling, too

Their outputs are not of each sample alone, unless the batch is the same on every rank.

Models that fill up what they have unpacked to the longest of the samples that they are given. ::

    hidden, _ = pad_packed_sequence(packed)    # as long as the longest, which another rank may have

Of a batch that was filled up before it is divided, targets and masks are as long as all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.bodies import loaded, stored
from ddpify.facts.events import Call, Forward
from ddpify.facts.padding import fills
from ddpify.facts.protocol import Machine
from ddpify.facts.recurrent import RECURRENT
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import FUNCTIONS
from ddpify.facts.values import Kind, Thing

REDUCES = frozenset("mean max amax std var logsumexp prod min amin".split())
POOLS = ("adaptive_", "max_pool1d", "avg_pool1d", "AdaptiveAvgPool", "AdaptiveMaxPool")
# What is asked of an input to tell its filling, or to leave it out.
TELLS = frozenset("ne eq gt masked_fill masked_fill_ pack_padded_sequence pack_sequence".split())
DEPTH = 3


def sees(m: Machine, model: Thing, call: Call) -> bool:
    """Whether a model is given what was filled up, and nothing beside, and looks along it."""
    alone = len(call.args) == 1 and not call.kwargs and not call.star and bool(call.arg_sites)
    if not alone or not fills(m, call.args[0], call.arg_sites[0]):
        return False
    found = list(texts(model, DEPTH))
    if any(_tells(node) for _, node in found):
        return False
    return any(_looks_along(one, node) for one, node in found)


def texts(model: Thing, depth: int) -> Iterator[tuple[Thing, ast.AST]]:
    """What a model of the project computes, and the models that it consists of."""
    if model.kind is Kind.WRAPPED and model.inner is not None:
        for inner in model.inner.things:
            yield from texts(inner, depth)
    if not isinstance(model.ref, ClassInfo) or model.kind is not Kind.MODEL:
        return
    for info in model.ref.mro():
        methods = (n for n in info.node.body if isinstance(n, ast.FunctionDef))
        for method in (one for one in methods if one.name != "__init__"):
            yield from ((model, node) for node in ast.walk(method))
    for value in model.attrs.values() if depth else ():
        for part in value.things:
            yield from texts(part, depth - 1)


def _tells(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(isinstance(one, ast.Constant) for one in node.comparators)
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    return name in TELLS or any("mask" in (keyword.arg or "") for keyword in node.keywords)


def _looks_along(model: Thing, node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        second = node.slice.elts[1] if len(node.slice.elts) > 1 else None  # `steps[:, -1]`
        return second is not None and ast.unparse(second) == "-1"
    if isinstance(node, ast.Assign):
        return _keeps_state(model, node)
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    layers = model.attrs[name].things if name in model.attrs else ()
    if name.startswith(POOLS) or any(t.name.rpartition(".")[2].startswith(POOLS) for t in layers):
        return True
    axes = [*node.args, *(k.value for k in node.keywords if k.arg in ("dim", "axis"))]
    return name in REDUCES and any(ast.unparse(axis) in ("1", "2", "-2") for axis in axes)


def _keeps_state(model: Thing, node: ast.Assign) -> bool:
    """``_, h = self.rnn(x)``: the state behind the last step."""
    target, called = node.targets[0], node.value
    if not isinstance(target, ast.Tuple) or not isinstance(called, ast.Call):
        return False
    name = ast.unparse(called.func).rpartition(".")[2]
    layers = model.attrs[name].things if name in model.attrs else ()
    named = any(ast.unparse(one) != "_" for one in target.elts[1:])
    return named and any(layer.name in RECURRENT for layer in layers)


WHY = (
    "the model fills up what it unpacks to the longest of its samples (`pad_packed_sequence` "
    "without `total_length`), which another rank may have"
)


def pads(call: ast.Call) -> bool:
    """Whether it fills sequences up to the longest of them."""
    name = ast.unparse(call.func).rpartition(".")[2]
    told = any(keyword.arg == "total_length" for keyword in call.keywords)
    return name in ("pad_packed_sequence", "pad_sequence") and not told


def unpacks(forwards: Iterable[Forward]) -> bool:
    """Whether one of these models reads what it has filled up so."""
    found = (node for forward in forwards for _, node in texts(forward.model, DEPTH))
    return any(_reads_padded(node) for node in found if isinstance(node, FUNCTIONS))


def _reads_padded(method: ast.AST) -> bool:
    """Whether what is padded is read: often only the state of the layer is."""
    read = set(loaded(method))
    assigned = [n for n in ast.walk(method) if isinstance(n, ast.Assign)]
    for node in (n for n in ast.walk(method) if isinstance(n, ast.Call) and pads(n)):
        targets = [t for a in assigned if a.value is node for t in a.targets]
        first = [t.elts[0] if isinstance(t, ast.Tuple) and t.elts else t for t in targets]
        if not first or stored(first) & read:
            return True
    return False
