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
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ddpify.facts.criteria import is_loss
from ddpify.facts.details import OpenLoss
from ddpify.facts.fresh import method_of
from ddpify.facts.inner_means import bindings
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import ClassInfo, FunctionInfo, functions_in
from ddpify.facts.values import Kind, Thing, Value

REDUCES = frozenset({"mean", "sum"})
DEEP = 3
SELF = "self"


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
    inner = model.stands_for if model.kind is Kind.WRAPPED else ()
    waiting, seen = [(info, (*inner, model)[0])], {info}
    while waiting:
        info, owner = waiting.pop()
        written, layers = _written(info), _given(info, owner)
        if any(each.makes_one for each in written) or _calls_unknown(info, layers):
            return True
        found = [*_methods(info), *_globals(info, {n for each in written for n in each.names})]
        reached = [(each, owner) for each in found]
        for layer in (thing for things in layers.values() for thing in things):
            forward = method_of(layer, "forward")
            if forward is not None:
                reached.append((forward, layer))
            elif layer.kind is not Kind.MODEL or may_compute_loss(layer):
                return True
        new = {each: whose for each, whose in reached if each not in seen}
        seen.update(new)
        waiting += new.items()
    return False


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
    return info is not None and info.module.source.once(_returns_one, info.node)


def _returns_one(function: ast.AST) -> bool:
    """``return recon + kl`` where one of them is a number; of a name what it is bound to."""
    if isinstance(function, ast.Lambda):
        return False
    bound, seen = bindings(function), set[str]()
    values = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
    for _ in range(DEEP + 1):
        parts = [part for value in values for part in _parts(value)]
        if any(map(_makes_one, parts)):
            return True
        names = {part.id for part in parts if isinstance(part, ast.Name)} - seen
        seen |= names
        values = [value for name in names for value in bound.get(name, ())]
    return False


def _parts(node: ast.AST) -> list[ast.AST]:
    """The operands of what is put together, else the expression itself."""
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.IfExp)):
        return [part for child in ast.iter_child_nodes(node) for part in _parts(child)]
    return [node]


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


@dataclass(frozen=True)
class _Wording:
    """What is written in a piece of text: names, ``self.x``, calls of it, what makes one number."""

    makes_one: bool
    names: frozenset[str]
    own: frozenset[str]
    called: frozenset[str]
    name: str  # if it is a name and nothing else

    @classmethod
    def of(cls, node: ast.AST) -> _Wording:
        """All of a function, or of an expression."""
        nodes = list(ast.walk(node))
        names = frozenset(n.id for n in nodes if isinstance(n, ast.Name))
        calls = [ast.unparse(n.func) for n in nodes if isinstance(n, ast.Call)]
        attributes = [n for n in nodes if isinstance(n, ast.Attribute)]
        own = frozenset(
            n.attr for n in attributes if isinstance(n.value, ast.Name) and n.value.id == SELF
        )
        called = frozenset(text[len(SELF) + 1 :] for text in calls if text.startswith(f"{SELF}."))
        name = node.id if isinstance(node, ast.Name) else ""
        return cls(any(map(_makes_one, nodes)), names, own, called, name)


def _written(info: FunctionInfo) -> list[_Wording]:
    """What is written in a function, and where its class stores what it takes from ``self``."""
    text = info.module.source.once(_Wording.of, info.node)
    return [text, *(made for name in text.own for made in _made(info, name))]


def _given(info: FunctionInfo, model: Thing) -> dict[str, tuple[Thing, ...]]:
    """The layers that a model was given, and a method calls: ``self.encoder = encoder``."""
    if not isinstance(model.ref, ClassInfo) or info.owner not in model.ref.mro():
        return {}
    called = info.module.source.once(_Wording.of, info.node).called
    known = {name: model.attrs[name].things for name in called if name in model.attrs}
    return {n: t for n, t in known.items() if t and all(one.kind is Kind.MODEL for one in t)}


def _calls_unknown(info: FunctionInfo, layers: Collection[str]) -> bool:
    """Whether a function is called that the model was given, perhaps a criterion."""
    called = info.module.source.once(_Wording.of, info.node).called - set(layers)
    given = {made.name for name in called for made in _made(info, name) if made.name}
    return not given <= info.module.globals.keys()


def _methods(info: FunctionInfo) -> Iterator[FunctionInfo]:
    for name in info.module.source.once(_Wording.of, info.node).own if info.owner else ():
        yield from functions_in(info.owner.lookup(name) if info.owner else None)


def _globals(info: FunctionInfo, names: set[str]) -> Iterator[FunctionInfo]:
    """The functions that names stand for; of a class its ``forward``."""
    known = [info.module.globals[name] for name in names if name in info.module.globals]
    for thing in (thing for value in known for thing in value.things):
        if isinstance(thing.ref, FunctionInfo):
            yield thing.ref
        elif isinstance(thing.ref, ClassInfo):
            yield from functions_in(thing.ref.lookup("forward"))


def _made(info: FunctionInfo, name: str) -> list[_Wording]:
    """All that the methods of a function's class store in ``self`` under a name."""
    line = info.owner.mro() if info.owner is not None else []
    return [
        made for each in line for made in each.module.source.once(_stores, each.node).get(name, ())
    ]


def _stores(owner: ast.ClassDef) -> dict[str, list[_Wording]]:
    """What is stored in ``self``, by name."""
    assigned = (node for node in ast.walk(owner) if isinstance(node, ast.Assign))
    stored = (p for node in assigned for t in node.targets for p in pairs(t, node.value))
    found: dict[str, list[_Wording]] = {}
    for kept, value in stored:
        text = ast.unparse(kept)
        if text.startswith(f"{SELF}."):
            found.setdefault(text[len(SELF) + 1 :], []).append(_Wording.of(value))
    return found


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple):
        each = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        yield from zip(target.elts, each, strict=False)
    else:
        yield target, value
