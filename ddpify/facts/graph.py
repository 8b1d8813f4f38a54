"""What the backward graph asks of the wrapper: repeated forwards, parameters without gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts import roles
from ddpify.facts.events import Forward
from ddpify.facts.joining import flat_deps
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Kind, Thing
from ddpify.source import Site

_WITH_PARAMETERS: Final = frozenset(
    f"torch.nn.{name}"
    for name in """Linear Bilinear Embedding EmbeddingBag RNN LSTM GRU RNNCell LSTMCell GRUCell
    Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d BatchNorm2d
    BatchNorm3d LayerNorm GroupNorm PReLU MultiheadAttention Transformer TransformerEncoder
    TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer Sequential""".split()
)


def repeated(m: Machine) -> frozenset[Site]:
    """Models that are called at several places before one backward."""
    found: set[Site] = set()
    by_output = {f.output: f for f in roles.forwards_of(m)}
    for call in roles.backwards(roles.calls_of(m)):
        places: dict[Site, set[Site]] = {}
        for value in (call.receiver, *call.args):
            for dep in flat_deps(value) if value is not None else ():
                forward = by_output.get(dep)
                if forward is not None:
                    born = roles.whole(forward.model).born
                    places.setdefault(born, set()).add(forward.call.site)
        found |= {born for born, sites in places.items() if len(sites) > 1}
    return frozenset(found)


def unused(m: Machine, things: tuple[Thing, ...]) -> str:
    """Why some parameters may get no gradient in a step; "" when nothing suggests it."""
    born = {t.born for t in things}
    for forward in roles.forwards_of(m):
        if roles.whole(forward.model).born in born and _drops_output(m, forward):
            return "not every output reaches the loss"
    return next(filter(None, map(_reason, _parts(things))), "")


def _drops_output(m: Machine, forward: Forward) -> bool:
    """``validity, _ = D(x)``: the head behind ``_`` gets no gradient."""
    tree = m.tree(forward.call.site.path)
    node = tree.expression(forward.call.site)
    above = tree.parent(node) if node is not None else None
    if not isinstance(above, ast.Assign) or forward.call.where.no_grad:
        return False
    target = above.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else []
    return any(isinstance(n, ast.Name) and n.id == "_" for n in names)


def _parts(things: tuple[Thing, ...], depth: int = 4) -> tuple[Thing, ...]:
    """The models of the project's classes that a model is made of, one of each class."""
    found: dict[ClassInfo, Thing] = {}
    for thing in things:
        if isinstance(thing.ref, ClassInfo):
            found.setdefault(thing.ref, thing)
        if depth:
            parts = tuple(t for v in thing.attrs.values() for t in v.of(Kind.MODEL))
            for part in _parts(parts, depth - 1):
                assert isinstance(part.ref, ClassInfo)
                found.setdefault(part.ref, part)
    return tuple(found.values())


def _reason(thing: Thing) -> str:
    info = thing.ref
    assert isinstance(info, ClassInfo)
    methods = [n for n in info.node.body if isinstance(n, ast.FunctionDef)]
    forward = next((n for n in methods if n.name == "forward"), None)
    init = next((n for n in methods if n.name == "__init__"), None)
    if forward is None or init is None:
        return ""
    if any(
        isinstance(n, ast.With) and "no_grad" in ast.unparse(n.items[0]) for n in ast.walk(forward)
    ):
        return "a part runs under no_grad"
    made = {n.attr for n in _own(init) if isinstance(n.ctx, ast.Store)}
    used = {n.attr for n in _own(info.node) if isinstance(n.ctx, ast.Load)}
    layers = {name for name in made - used if _is_part(thing, name)}
    if any(isinstance(n, ast.Call) and _walks_modules(n) for n in ast.walk(forward)):
        return ""
    if layers:
        return f"`{sorted(layers)[0]}` is never used"
    elsewhere = {n.attr for m in methods if m not in (forward, init) for n in _own(m)}
    parts = {name for name in made & used - elsewhere if _is_part(thing, name)}
    asked = {name for name in parts if _is_optional(name, forward, init)}
    return f"`{sorted(asked)[0]}` is used under a condition only" if asked else ""


def _is_optional(name: str, forward: ast.FunctionDef, init: ast.FunctionDef) -> bool:
    """``if USE_AUX: return x, self.aux(x)``, of a layer that is always made."""
    tests = [test for test, body in _branches(forward) if any(n.attr == name for n in _own(body))]
    uses = sum(n.attr == name for n in _own(forward))
    inside = sum(n.attr == name for _, body in _branches(forward) for n in _own(body))
    if not tests or inside < uses or not _is_always_made(init, name):
        return False
    asked = {n.attr for test in tests for n in _own(test)}
    return len(tests) == 1 and not asked & {name, "training"}


def _branches(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.Module]]:
    """The tests of a function, and what stands under one side of each."""
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            yield node.test, ast.Module(node.body, [])
            yield node.test, ast.Module(node.orelse, [])
        elif isinstance(node, ast.IfExp):
            yield node.test, ast.Module([ast.Expr(node.body)], [])
            yield node.test, ast.Module([ast.Expr(node.orelse)], [])


def _own(scope: ast.AST) -> list[ast.Attribute]:
    """Every ``self.x`` in a scope."""
    found = [n for n in ast.walk(scope) if isinstance(n, ast.Attribute)]
    return [n for n in found if isinstance(n.value, ast.Name) and n.value.id == "self"]


def _is_part(thing: Thing, name: str) -> bool:
    """Whether an attribute is a module that has parameters: of the project, or of torch."""
    parts = thing.attrs[name].of(Kind.MODEL) if name in thing.attrs else ()
    return any(isinstance(p.ref, ClassInfo) or p.name in _WITH_PARAMETERS for p in parts)


def _is_always_made(init: ast.FunctionDef, name: str) -> bool:
    """Whether the constructor makes it under no condition."""
    stored = (n for n in init.body if isinstance(n, (ast.Assign, ast.AnnAssign)))
    made = (n for n in stored if any(a.attr == name for a in _own(n)))
    return any(isinstance(a.ctx, ast.Store) for n in made for a in _own(n) if a.attr == name)


def _walks_modules(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in ("children", "modules", "named_children", "named_modules") or (
        isinstance(call.func, ast.Name) and call.func.id == "getattr"
    )
