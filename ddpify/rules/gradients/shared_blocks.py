"""Blocks that one forward runs several times, each time recomputed in the backward."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.rules.shared.syntax import dotted
from ddpify.site import Site

CHECKPOINT: Final = "torch.utils.checkpoint.checkpoint"


# Layers that have parameters, whatever they are given.
_LAYERS: Final = re.compile(
    r"torch\.nn\.(Linear|Conv|LayerNorm|RMSNorm|Embedding|GRU|LSTM|RNN|MultiheadAttention|Transformer)"
)


def run_again(info: ClassDefinition) -> Iterator[Site]:
    """Where a method checkpoints the same ``self.block`` once more, reentrantly: in a loop that
    counts, not one over blocks, or in several places."""
    layers = _layers(info)
    for method in info.methods.values():
        found = [one for one in _reentrant(method) if one[1] in layers]
        times = Counter(name for _, name, _ in found)
        for call, name, repeats in found:
            if repeats or times[name] > 1:
                yield info.module.site(call)


def _layers(info: ClassDefinition) -> set[str]:
    """The attributes that the constructor makes of layers with parameters."""
    method = info.methods.get("__init__")
    stores = (one for one in ast.walk(method.node) if isinstance(one, ast.Assign)) if method else ()
    return {
        target.attr
        for one in stores
        for target in one.targets
        if isinstance(target, ast.Attribute)
        and any(_is_layer(info, x) for x in ast.walk(one.value))
    }


def _is_layer(info: ClassDefinition, node: ast.AST) -> bool:
    name = dotted(info.module, node.func) if isinstance(node, ast.Call) else None
    return name is not None and _LAYERS.match(name) is not None


def _reentrant(method: FunctionDefinition) -> Iterator[tuple[ast.Call, str, bool]]:
    """The calls and their blocks, each with whether a loop repeats it; not under a condition."""
    body = method.node.body if isinstance(method.node, ast.FunctionDef) else []
    todo: list[tuple[ast.AST, bool]] = [(node, False) for node in body]
    while todo:
        node, repeats = todo.pop()
        name = _block(method, node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name:
            yield node, name, repeats
        again = repeats or (isinstance(node, ast.For) and _counts(node.iter))
        if not isinstance(node, (ast.If, ast.IfExp, ast.FunctionDef, ast.Lambda, ast.While)):
            todo += [(child, again) for child in ast.iter_child_nodes(node)]


def _counts(over: ast.expr) -> bool:
    """Whether it is ``range(self.repeats)``, and not one round."""
    if not isinstance(over, ast.Call) or ast.unparse(over.func) != "range":
        return False
    return ast.unparse(over) not in ("range(1)", "range(0, 1)")


def _block(method: FunctionDefinition, call: ast.Call) -> str:
    """``block`` of ``checkpoint(self.block, x, use_reentrant=True)``."""
    if dotted(method.module, call.func) != CHECKPOINT or not call.args:
        return ""
    given = {one.arg: one.value for one in call.keywords}.get("use_reentrant")
    reentrant = isinstance(given, ast.Constant) and given.value is True
    block = call.args[0]
    own = isinstance(block, ast.Attribute) and ast.unparse(block.value) == "self"
    return block.attr if isinstance(block, ast.Attribute) and own and reentrant else ""
