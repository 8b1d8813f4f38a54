"""Batches of torchtext: objects that an iterator makes anew in each pass, with tensors in fields.

Such a batch is divided field by field: ``b.src, b.trg = own_share(b.src, b.trg, dim=1)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ddpify.facts.bodies import Block
from ddpify.facts.events import Forward
from ddpify.facts.fresh import method_of
from ddpify.facts.protocol import Machine

SIZE = "batch_size"
# What a batch has besides its fields.
OTHERS = frozenset("dataset fields input_fields target_fields".split())


def fields(
    m: Machine, block: Block, name: str, forwards: Sequence[Forward]
) -> tuple[str, ...] | None:
    """What statements and the model read of a batch, None where it is used otherwise."""
    found: dict[str, None] = {}
    for node, above in _uses(block, name):
        read = _read(m, node, above, forwards)
        if read is None:
            return None
        found |= dict.fromkeys(read)
    tensors = tuple(f"{name}.{field}" for field in found if field != SIZE)
    return None if found.keys() & OTHERS else tensors or None


def sizes(block: Block, name: str) -> Iterator[ast.expr]:
    """Where statements ask a batch for the number of its samples."""
    for _, above in _uses(block, name):
        if isinstance(above, ast.Attribute) and above.attr == SIZE:
            yield above


def _read(
    m: Machine, node: ast.AST, above: ast.AST, forwards: Sequence[Forward]
) -> list[str] | None:
    if isinstance(above, ast.Attribute):
        return [above.attr] if isinstance(above.ctx, ast.Load) else None
    for forward in forwards:
        call = m.tree(forward.call.site.path).expression(forward.call.site)
        if call is above and isinstance(call, ast.Call) and node in call.args:
            return _read_by(forward, call.args.index(node))
    return None


def _read_by(forward: Forward, position: int) -> list[str] | None:
    """The fields that a model reads of the batch that it is given."""
    info = method_of(forward.model, "forward")
    if info is None or isinstance(info.node, ast.Lambda):
        return None
    names = [argument.arg for argument in info.node.args.args]
    if len(names) <= position + 1:
        return None
    uses = list(_uses(info.node.body, names[position + 1]))
    read = [a.attr for _, a in uses if isinstance(a, ast.Attribute) and isinstance(a.ctx, ast.Load)]
    return read if len(read) == len(uses) and SIZE not in read else None


def _uses(block: Block, name: str) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Where a name stands, with what is around it."""
    for above in (inner for statement in block for inner in ast.walk(statement)):
        for node in ast.iter_child_nodes(above):
            if isinstance(node, ast.Name) and node.id == name:
                yield node, above
