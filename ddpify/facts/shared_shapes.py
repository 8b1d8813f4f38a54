"""The lengths of tensors that are the same for all samples, where the text, or its maker, says so.

What is done with samples and a weight depends on how many axes the weight has, which its value does
not say. ::

    self.codes = nn.Embedding(512, 64)      # `self.codes.weight` has two
    self.token = nn.Parameter(torch.zeros(1, 1, dim))
    w = self.codes.weight[None]             # three, the first of length 1
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.source import Site

Lengths = tuple[int | None, ...]  # None: not known how long
MADE = frozenset(f"torch.{name}" for name in "randn rand zeros ones empty Tensor".split())
WEIGHTS = ("torch.nn.Embedding", "torch.nn.Linear", "torch.nn.EmbeddingBag")
FULL: Lengths = (None, None)
# What leaves all lengths: methods and attributes.
KEEPS = frozenset(
    """data detach clone to cuda cpu float double half contiguous abs exp tanh sigmoid relu softmax
    softplus square type_as requires_grad_""".split()
)


def of_site(m: Machine, site: Site | None) -> Lengths | None:
    """The lengths of what an expression gives, if that is shared; None where not even how many."""
    node = m.tree(site.path).expression(site) if site is not None else None
    return _of_node(m, site.path, node) if site is not None and node is not None else None


def _of_node(m: Machine, path: str, node: ast.expr) -> Lengths | None:
    made = _of_things(m.values.get(m.tree(path).site(node), NOTHING))
    if made is not None:
        return made
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=given):
            inner = _of_node(m, path, owner) or _of_turned(name)
            return _turned(inner, name, given) if inner is not None and not node.keywords else None
        case ast.Attribute(value=owner, attr=name):
            inner = _of_node(m, path, owner) or _of_turned(name)
            return _turned(inner, name, ()) if inner is not None else None
        case ast.Subscript(value=owner, slice=index):
            inner = _of_node(m, path, owner)
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            return _indexed(inner, parts) if inner is not None else None
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.Pow(), right=ast.Constant()):
            return _of_node(m, path, left)
    return None


def _of_things(value: Value) -> Lengths | None:
    found = {_of_thing(thing) for thing in value.of(Kind.UNKNOWN)}
    return found.pop() if len(found) == 1 and len(value.things) == 1 else None


def _of_thing(thing: Thing) -> Lengths | None:
    """A parameter or buffer, and the weight of a layer whose weights are matrices."""
    if thing.part_of is not None and thing.part_of.kind is Kind.MODEL:
        layer, _, name = thing.name.rpartition(".")
        return FULL if name == "weight" and layer in WEIGHTS else None
    call = call_that_made(thing)
    if call is None or call.star:
        return None
    if call.name == "torch.nn.Parameter" or call.name == "torch.nn.parameter.Parameter":
        return _of_things(call.args[0]) if call.args else None
    return _given(call) if call.name in MADE else None


def _given(call: Call) -> Lengths | None:
    """``torch.randn(4, dim)``, ``torch.zeros((1, dim))``."""
    first = call.args[0] if call.args else NOTHING
    if first.things:
        items = first.things[0].items if len(call.args) == 1 and first.of(Kind.TUPLE) else None
        return _known(items) if items and call.name != "torch.Tensor" else None
    if len(call.args) == 1 and not first.known:
        return None  # a shape that is kept somewhere
    return _known(call.args) if call.args else None


def _known(lengths: Sequence[Value]) -> Lengths:
    return tuple(one.const if isinstance(one.const, int) else None for one in lengths)


def _of_turned(name: str) -> Lengths | None:
    """``w.t()``, ``w.T``: of a matrix."""
    return FULL if name in ("t", "T") else None


def _turned(lengths: Lengths, name: str, given: Sequence[ast.expr]) -> Lengths | None:
    numbers = [_number(one) for one in given]
    if name in KEEPS:
        return lengths
    if name in ("t", "T") and len(lengths) <= 2 and not given:
        return lengths[::-1]
    if name == "unsqueeze" and len(numbers) == 1 and numbers[0] is not None:
        place = numbers[0] + (len(lengths) + 1 if numbers[0] < 0 else 0)
        fits = 0 <= place <= len(lengths)
        return (*lengths[:place], 1, *lengths[place:]) if fits else None
    if name == "transpose" and len(numbers) == 2:
        return (None,) * len(lengths)
    return None


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None


def _indexed(lengths: Lengths, parts: Sequence[ast.expr]) -> Lengths | None:
    """``w[None]``, ``w[:1]``, ``w[0]``, ``w[:, None, :]``; None for other indices."""
    left, found = list(lengths), list[int | None]()
    for part in parts:
        if isinstance(part, ast.Constant) and part.value is None:
            found.append(1)
        elif isinstance(part, ast.Slice) and left:
            whole = part.lower is None and part.upper is None and part.step is None
            first = part.lower is None and part.step is None and _said(part.upper) == 1
            length = left.pop(0)
            found.append(length if whole else 1 if first and length != 0 else None)
        elif _number(part) is not None and left:
            left.pop(0)
        else:
            return None
    return (*found, *left)


def _said(node: ast.expr | None) -> int | None:
    return _number(node) if node is not None else None
