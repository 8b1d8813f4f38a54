"""Numbers that leave the program, and which parts of them one rank alone computed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from ddpify.facts.effects import Effect, EffectKind
from ddpify.facts.events import Call, LoopEnd
from ddpify.facts.joining import flat_deps, flat_measure
from ddpify.facts.locality import Sharded, is_shared_out
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure, Value
from ddpify.source import Site

SHOWN = (Kind.TRACKER, Kind.FILE, Kind.PROGRESS, Kind.LOGGER)
# What draws numbers into a picture that is saved or shown later.
PLOTS = frozenset("plot scatter bar hist semilogx semilogy loglog errorbar".split())
SUMS = (Measure.SUM, Measure.COUNT)
# How a count of samples is that of all ranks: of a loader that trains they have equally many.
COUNTED = "get_world_size()"


@dataclass(frozen=True)
class Own:
    """What each rank has samples of its own from: as ``read``, and the loaders that train."""

    read: Sharded
    trained: frozenset[Site]


@dataclass(frozen=True)
class Part:
    """A sub-expression of a sink that ranks must combine first.

    ``how`` is the helper, ``COUNTED`` what it has to be multiplied by, and "" where it is unknown.
    """

    site: Site
    text: str
    how: str


def sinks(
    calls: tuple[Call, ...], effects: tuple[Effect, ...], helpers: frozenset[FunctionInfo]
) -> tuple[Call, ...]:
    """Calls for their own sake that show or store numbers."""
    visible = (EffectKind.CONSOLE, EffectKind.TRACKER, EffectKind.FILE)
    found = [e.call for e in effects if e.kind in visible and e.call.alone]
    for call in calls:
        if call.target in helpers or (call.alone and _shows(call)):
            found.append(call)
    inside = [c for c in found if c.where.function not in helpers]
    return tuple(sorted(dict.fromkeys(inside), key=lambda c: c.order))


def _shows(call: Call) -> bool:
    receiver = call.receiver
    if call.name.startswith("logging.") or _plots(call):
        return True
    if receiver is None or call.target is not None:
        return False
    return bool(receiver.of(*SHOWN)) or bool(receiver.dep(Kind.FILE, Kind.TRACKER))


def _plots(call: Call) -> bool:
    owner, _, name = call.name.rpartition(".")
    return name in PLOTS and call.target is None and owner in ("", "matplotlib.pyplot")


def parts(tree: Tree, call: Call, values: dict[Site, Value], local: Own) -> list[Part]:
    """The smallest named parts of a sink's arguments that only this rank computed."""
    node = tree.expression(call.site)
    if not isinstance(node, ast.Call):
        return []
    if _plots(call):
        given = zip(call.arg_sites, call.args, strict=False)
        own = [at for at, value in given if _of_one(value, local.read)]
        return [Part(at, tree.source.segment(at.span), "") for at in own]
    found: list[Part] = []
    for argument in (*node.args, *[k.value for k in node.keywords]):
        _visit(tree, argument, values, local, found)
    unique = {(p.text, p.how, p.site): p for p in found}
    return list(unique.values())


def meters(tree: Tree, call: Call, ends: Iterable[LoopEnd]) -> list[Part]:
    """The average meters that a sink in a loop over batches is given whole: ``loss=losses``."""
    node = tree.expression(call.site)
    loops = {(loop.site, loop.frame.stack) for loop in call.where.loops()}
    held = {n for e in ends if (e.loop.site, e.loop.frame.stack) in loops for n in e.held}
    same = {e.loop.frame.stack for e in ends} & {call.where.stack}
    if node is None or not held or not same:
        return []
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in held)
    whole = [n for n in names if isinstance(tree.parent(n), (ast.keyword, ast.Call))]
    return [Part(tree.site(n), n.id, "global_meter") for n in whole]


def _visit(
    tree: Tree, node: ast.expr, values: dict[Site, Value], local: Own, found: list[Part]
) -> None:
    site = tree.site(node)
    value = values.get(site)
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                _visit(tree, part.value, values, local, found)
        return
    if value is None or not depends(value, local.read) or _of_all(tree, node, values):
        return
    inner = _inside(node)
    whole = isinstance(node, (ast.Name, ast.Attribute)) or _is_number_call(node)
    if whole or not inner or (isinstance(node, ast.Subscript) and _how(value, local.trained)):
        # Pictures and the like are not numbers; what `.item()` gives of a model's output is one.
        if value.measure is not Measure.SAMPLES or _is_item(node):
            found.append(Part(site, tree.text(node), _how(value, local.trained)))
        return
    own: list[Part] = []
    for child in inner:
        _visit(tree, child, values, local, own)
    if _ratio(node) and len({bool(p.how) for p in own}) > 1:
        own = [Part(site, tree.text(node), "")]  # one rank's part of all ranks' count is no mean
    found += own


def _of_all(tree: Tree, node: ast.expr, values: dict[Site, Value]) -> bool:
    """``len(x) * get_world_size()``: the count of all ranks."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = (values.get(tree.site(side)) for side in (node.left, node.right))
    return any(side is not None and bool(side.of(Kind.WORLD)) for side in sides)


def _ratio(node: ast.expr) -> bool:
    """``part / whole`` or ``mean * count``: both of one rank, or both of all."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mult))


def depends(value: Value, m: Sharded) -> bool:
    """Whether a value, or what it holds, comes from a sharded loader's batches."""
    if value.measure is Measure.UNIFORM and not value.of(Kind.TUPLE, Kind.DICT):
        return False
    return flat_measure(value) is not Measure.UNIFORM and _of_one(value, m)


def _of_one(value: Value, m: Sharded) -> bool:
    """Whether there is a share of the samples behind a value."""
    return any(
        is_shared_out(m, t)
        for d in flat_deps(value)
        if d.kind is Kind.BATCH and d.inner is not None
        for t in d.inner.things
    )


def _is_number_call(node: ast.expr) -> bool:
    """``loss.item()``, ``len(data)``: one number, taken whole."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in ("item", "size") and not isinstance(node.func.value, ast.Constant)
    return isinstance(node.func, ast.Name) and node.func.id == "len"


def _is_item(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "item"


def _inside(node: ast.expr) -> list[ast.expr]:
    return [c for c in _children(node) if isinstance(c, ast.expr)]


def _children(node: ast.expr) -> list[ast.AST]:
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*receiver, *node.args, *[k.value for k in node.keywords]]
    if isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
        return []
    return list(ast.iter_child_nodes(node))


def _how(value: Value, trained: frozenset[Site]) -> str:
    if value.measure is Measure.COUNT and _born(value) <= trained:
        return COUNTED
    if value.measure in SUMS:
        return "reduce_sum"
    return "reduce_mean" if value.measure is Measure.MEAN else ""


def _born(value: Value) -> frozenset[Site]:
    """Where the loaders were made from whose batches a value comes."""
    batches = (d.inner for d in flat_deps(value) if d.kind is Kind.BATCH and d.inner is not None)
    return frozenset(t.born for inner in batches for t in inner.things)
