"""Whether what a model returns may be a loss of its own that is not followed.

An output has the samples of the inputs, and its mean is one over them. A loss that a model computes
from inputs and targets has not: it may be a sum, or a mean over the targets that count, and is
still that after ``.mean()``, which scripts write for what `nn.DataParallel` gathers. ::

    def forward(self, x, y):
        return F.cross_entropy(self.body(x)[y > 0], y[y > 0], reduction="sum")

    net(x, y).mean().backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.criteria import is_loss
from ddpify.facts.details import OpenLoss
from ddpify.facts.fresh import method_of
from ddpify.facts.inner_means import bound
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import ClassInfo, FunctionInfo
from ddpify.facts.values import Kind, Thing, Value

REDUCES = frozenset({"mean", "sum"})
DEEP = 3


def is_open(m: Machine, value: Value) -> bool:
    """Whether a value may be a loss that a model has made, or be made of one.

    What ranks make of it is what the replicas of `nn.DataParallel` did: where it is there, its mean
    over them is what it was.
    """
    outputs = value.dep(Kind.FORWARD) if not (m.parallel or has_rows(value)) else ()
    return any(output.detail(OpenLoss) is not None for output in outputs)


def may_compute_loss(model: Thing) -> bool:
    """Whether a ``forward``, or what it calls of the project, makes a loss or one number."""
    info = method_of(model, "forward")
    if info is None:
        return not isinstance(model.ref, ClassInfo) and "torch.nn." not in model.name
    inner = model.inner.things if model.kind is Kind.WRAPPED and model.inner is not None else ()
    return any(node is None or _makes_one(node) for node in _reached(info, (*inner, model)[0]))


def is_layer(model: Thing, name: str) -> bool:
    """Whether a part of a model makes of samples what layers do, and no loss."""
    parts = model.attrs[name].things if name in model.attrs else ()
    known = bool(parts) and all(part.kind is Kind.MODEL for part in parts)
    return known and not any(may_compute_loss(part) for part in parts)


def returns_one(model: Thing) -> bool:
    """Whether a ``forward`` returns a loss, or what it has put together of all samples.

    It has no rows then, though it is made of one tensor with rows.
    """
    info = method_of(model, "forward")
    if info is None or isinstance(info.node, ast.Lambda):
        return False
    found = [n.value for n in ast.walk(info.node) if isinstance(n, ast.Return) and n.value]
    return any(_is_one(info.node, value, DEEP) for value in found)


def _is_one(function: ast.AST, node: ast.AST, depth: int) -> bool:
    """``recon + kl`` where one of them is a number; of a name what it is bound to."""
    if isinstance(node, ast.Name) and depth:
        return any(_is_one(function, value, depth - 1) for value in bound(function, node.id))
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.IfExp)):
        return any(_is_one(function, part, depth) for part in ast.iter_child_nodes(node))
    return _makes_one(node)


def _makes_one(node: ast.AST) -> bool:
    """``F.cross_entropy(…)``, ``nn.MSELoss()``, ``x.mean()``, ``torch.sum(x)``."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    if name in REDUCES and not node.keywords:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        module = isinstance(owner, ast.Name) and owner.id in ("torch", "np")
        return len(node.args) == int(module)
    return is_loss(name) or (name.endswith("Loss") and name[:1].isupper())


def _reached(start: FunctionInfo, model: Thing) -> Iterator[ast.AST | None]:
    """All that is written in a function, and in those of the project that it names.

    None stands for what is not known: a function that the model was given, perhaps a criterion.
    """
    waiting, seen = [(start, model)], {start}
    while waiting:
        info, owner = waiting.pop()
        for node in ast.walk(info.node):
            yield node
            for layer in _given(info, node, owner):
                inner = method_of(layer, "forward")
                if inner is None and (layer.kind is not Kind.MODEL or may_compute_loss(layer)):
                    yield None
                elif inner is not None and inner not in seen:
                    seen.add(inner)
                    waiting.append((inner, layer))
            for found in _named(info, node, owner):
                if not isinstance(found, FunctionInfo):
                    yield found
                elif found not in seen:
                    seen.add(found)
                    waiting.append((found, owner))


def _given(info: FunctionInfo, node: ast.AST, model: Thing) -> tuple[Thing, ...]:
    """The layers that a model was given, and calls here: ``self.encoder = encoder``."""
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    own = isinstance(model.ref, ClassInfo) and info.owner in model.ref.mro()
    known = model.attrs.get(name[5:]) if own and name.startswith("self.") else None
    whole = known is not None and all(thing.kind is Kind.MODEL for thing in known.things)
    return known.things if known is not None and whole else ()


def _named(
    info: FunctionInfo, node: ast.AST, model: Thing
) -> Iterator[FunctionInfo | ast.AST | None]:
    """What a name stands for; of ``self.layer`` what a method has stored there."""
    if isinstance(node, ast.Name):
        yield from _global(info, node)
    if isinstance(node, ast.Call) and info.owner and ast.unparse(node.func).startswith("self."):
        layers = _stored(info.owner, ast.unparse(node.func)[5:])
        names = (layer.id for layer in layers if isinstance(layer, ast.Name))
        known = bool(_given(info, node, model))
        yield from (None for name in names if name not in info.module.globals and not known)
    if isinstance(node, ast.Attribute) and info.owner and ast.unparse(node.value) == "self":
        method = info.owner.lookup(node.attr)
        things = method.things if method is not None else ()
        yield from (thing.ref for thing in things if isinstance(thing.ref, FunctionInfo))
        for made in _stored(info.owner, node.attr):
            for part in ast.walk(made):
                yield part
                yield from _global(info, part) if isinstance(part, ast.Name) else ()


def _global(info: FunctionInfo, name: ast.Name) -> Iterator[FunctionInfo]:
    known = info.module.globals.get(name.id)
    for thing in known.things if known is not None else ():
        if isinstance(thing.ref, FunctionInfo):
            yield thing.ref
        elif isinstance(thing.ref, ClassInfo):
            inner = thing.ref.lookup("forward")
            refs = (t.ref for t in inner.things) if inner is not None else ()
            yield from (ref for ref in refs if isinstance(ref, FunctionInfo))


def _stored(owner: ClassInfo, name: str) -> Iterator[ast.expr]:
    """All that the methods of a class store in ``self`` under a name."""
    for info in owner.mro():
        for node in ast.walk(info.node):
            if isinstance(node, ast.Assign):
                pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
                yield from (value for kept, value in pairs if ast.unparse(kept) == f"self.{name}")


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple):
        each = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        yield from zip(target.elts, each, strict=False)
    else:
        yield target, value
