"""Whether all that a model of several outputs returns has a row for each sample it is given.

One of them may be a table, or the anchors of a picture, which would be gathered N times over. What
one output is made of is taken for granted elsewhere; of several it is read, layer by layer. Since
the first part without rows is the answer, nothing has to be asked twice. ::

    z = self.embedding(x.view(x.size(0), -1))
    return self.up(z), z
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field

from ddpify.facts import roles
from ddpify.facts.details import call_that_made
from ddpify.facts.fresh import method_of, qualified
from ddpify.facts.measures import ELEMENTWISE_FUNCTIONS
from ddpify.facts.outputs import several
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import ALONG, ENTRYWISE, RESHAPES
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.sums import TURNS
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.facts.written_parts import parts_of

LIBRARIES = ("torch.nn.", "torchvision.models.resnet", "torchvision.models.vgg")
# Of these the first axis may be that of time, of boxes or of what is folded.
OTHERWISE = frozenset(
    f"torch.nn.{name}"
    for name in """RNN LSTM GRU RNNBase Transformer TransformerEncoder TransformerDecoder
    TransformerEncoderLayer TransformerDecoderLayer MultiheadAttention EmbeddingBag Flatten
    Unflatten Fold Module ModuleList ModuleDict Parameter""".split()
)
SOFTMAX = frozenset({"torch.nn.Softmax", "torch.nn.LogSoftmax", "torch.nn.Softmin"})
BEHIND = (ALONG - {"normalize", "topk", "sort"}) | {"cat", "stack"}  # along a given axis
PLAIN = ENTRYWISE | (ELEMENTWISE_FUNCTIONS - {"where", "topk", *BEHIND}) | {"leaky_relu", "elu"}
DEPTH = 4


def of_several(m: Machine, value: Value) -> bool:
    """Whether a value is made of one of several outputs of a model, some perhaps without rows."""
    made = (f for f in roles.forwards_of(m) if f.output in value.deps)
    return any(several(f.model, f.call.where.guards) and not all_rows(f.model) for f in made)


def all_rows(model: Thing, given: int = 1) -> bool:
    """Whether each output of a model is made of its inputs, so many, sample by sample."""
    info = method_of(model, "forward")
    inner = model.unwrapped
    if info is None:
        return _is_row_wise(inner) and given == 1
    return _returns(inner, info, given, DEPTH, set())


def _returns(model: Thing, info: FunctionInfo, given: int, depth: int, read: set[object]) -> bool:
    """Whether a method that is ``given`` so many tensors of samples returns such alone.

    One that was ``read`` for the same question did, or that would have been the answer.
    """
    node, asked = info.node, (model, info, given, depth)
    if isinstance(node, ast.Lambda) or not depth:
        return False
    if asked in read:
        return True
    read.add(asked)
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    found = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
    inner = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    reading = _Method(
        model, info, node, names[0] if names else "", set(names[1 : 1 + given]), depth, read
    )
    written = [parts_of(value, info, {}) for value in found]
    parts = [p for v, w in zip(found, written, strict=True) for p in (w.values if w else [v])]
    if any(isinstance(n, ast.Attribute) and n.attr in TURNS for n in ast.walk(node)):
        return False
    return len(inner) == 1 and bool(parts) and all(p is not None and reading.rows(p) for p in parts)


@dataclass
class _Method:
    """One method of a model, with the parameters that are of samples."""

    model: Thing
    info: FunctionInfo
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: str
    given: set[str]
    depth: int
    read: set[object]  # what was asked of methods so far
    asked: set[str] = field(default_factory=set)

    def rows(self, node: ast.expr) -> bool:
        """Whether an expression has a row for each sample."""
        match node:
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                sides = [s for s in (left, node.right) if not isinstance(s, ast.Constant)]
                return bool(sides) and all(map(self.rows, sides))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if (
                name == self.owner
            ):
                return self._own(attr, node)
            case ast.Call(func=ast.Attribute(value=owner, attr=attr) as function):
                library = qualified(self.info, function).startswith("torch.") and bool(node.args)
                subject, rest = (node.args[0], node.args[1:]) if library else (owner, node.args)
                keeps = self._keeps(attr, rest, node.keywords)
                parts = subject.elts if isinstance(subject, (ast.List, ast.Tuple)) else [subject]
                return keeps and bool(parts) and all(map(self.rows, parts))
        return False

    def _name(self, name: str) -> bool:
        if name in self.asked:  # perhaps for itself: `x = self.layer(x)`
            return True
        self.asked.add(name)
        bound = self._bound(name)
        right = all(one is not None and self.rows(one) for one in bound)
        return right and (bool(bound) or name in self.given)

    def _bound(self, name: str) -> list[ast.expr | None]:
        """All that a name is bound to; None for what is no plain assignment."""
        arguments = {a.arg for a in ast.walk(self.node.args) if isinstance(a, ast.arg)}
        other = [None] if name in arguments - self.given else []
        return [*other, *self.info.module.source.once(_bindings, self.node).get(name, ())]

    def _own(self, name: str, call: ast.Call) -> bool:
        """``self.layer(x)``, ``self.encode(x)``: what layers make of samples, sample by sample."""
        if not call.args or call.keywords or not all(map(self.rows, call.args)):
            return False
        method, given = method_of(self.model, name), len(call.args)
        if method is not None:
            return _returns(self.model, method, given, self.depth - 1, self.read)
        layers = self.model.attrs.get(name, NOTHING).things
        return bool(layers) and all(self._layer(one, given) for one in layers)

    def _layer(self, layer: Thing, given: int) -> bool:
        forward = method_of(layer, "forward")
        if forward is not None:
            return _returns(layer, forward, given, self.depth - 1, self.read)
        return _is_row_wise(layer)

    def _keeps(self, name: str, given: list[ast.expr], named: list[ast.keyword]) -> bool:
        """Whether a function of a tensor leaves its first axis alone."""
        first = given[0] if given else named[0].value if named else None
        if name in RESHAPES:
            return first is not None and self._is_length(first)
        if name in BEHIND:
            return isinstance(first, ast.Constant) and type(first.value) is int and first.value > 0
        return name in PLAIN

    def _is_length(self, node: ast.expr) -> bool:
        """``x.size(0)``, ``x.shape[0]``, and a name of it."""
        if isinstance(node, ast.Name):
            bound = [one for one in self._bound(node.id) if not isinstance(one, ast.Name)]
            plain = bound and len(bound) == len(self._bound(node.id))
            return bool(plain) and all(one is not None and self._is_length(one) for one in bound)
        text, owner = ast.unparse(node), node
        while isinstance(owner, (ast.Call, ast.Attribute, ast.Subscript)):
            owner = owner.func if isinstance(owner, ast.Call) else owner.value
            if text in (f"{ast.unparse(owner)}.size(0)", f"{ast.unparse(owner)}.shape[0]"):
                return self.rows(owner)
        return False


def _is_row_wise(layer: Thing) -> bool:
    """Whether a layer of a library makes each row of one; of several in a row, all have to."""
    made = call_that_made(layer)
    if layer.name == "torch.nn.Sequential" and made is not None and not made.star:
        parts = [one for value in made.args for one in value.things]
        return bool(parts) and all(_is_row_wise(one) for one in parts)
    if layer.name in SOFTMAX:
        axis = made.arg(0, "dim") if made is not None else None
        return axis is not None and isinstance(axis.const, int) and axis.const in (-1, 1, 2, 3)
    known = layer.name.startswith(LIBRARIES) and layer.name not in OTHERWISE
    return known and layer.kind is Kind.MODEL


def _bindings(node: ast.AST) -> dict[str, list[ast.expr | None]]:
    """All that names are bound to; None for what is no plain assignment."""
    found: defaultdict[str, list[ast.expr | None]] = defaultdict(list)
    for each in ast.walk(node):
        match each:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                found[target].append(value)
            case ast.stmt() | ast.withitem() | ast.ExceptHandler() | ast.NamedExpr():
                for name in _binds(each):
                    found[name].append(None)
    return found


def _binds(node: ast.AST) -> set[str]:
    """What a statement binds itself, and not those in its body."""
    match node:
        case ast.For(target=target) | ast.AsyncFor(target=target) | ast.NamedExpr(target=target):
            nodes: list[ast.AST] = [target]
        case ast.withitem(optional_vars=target):
            nodes = [target] if target is not None else []
        case ast.ExceptHandler(name=name):
            return {name} if name else set()
        case _ if hasattr(node, "body"):
            nodes = []
        case _:
            nodes = [node]
    names = (n for each in nodes for n in ast.walk(each) if isinstance(n, ast.Name))
    return {n.id for n in names if not isinstance(n.ctx, ast.Load)}
