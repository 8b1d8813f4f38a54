"""Parts of a model of which each round takes another: ``self.heads[task](h)``, ``task`` by step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankLoop
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.origins import RANDOM
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run
from ddpify.rules.model.submodules import Layers, qualified_call
from ddpify.rules.shared.parameters import LAYERS
from ddpify.rules.shared.syntax import scope_nodes
from ddpify.rules.shared.wrapped import Wrap, backwards, forwards, parameters_of, reached
from ddpify.site import Site

_LISTS: Final = ("torch.nn.ModuleDict", "torch.nn.ModuleList")
_REPEATS: Final = (ast.For, ast.While, ast.comprehension)


def chosen_parts(run: Run, wrap: Wrap, layers: Layers) -> Iterator[tuple[str, str, Site]]:
    """(the list or dict of layers, the argument that says which one is used, where it is)."""
    info = wrap.inner[0].cls
    forward = info.method("forward") if info is not None else None
    for name in _several(info) if info is not None and forward is not None else ():
        found = _picked(forward, name) if forward and layers.mentioned[name] == 1 else None
        if found is None or forward is None:
            continue
        node, by = found
        place = forward.parameters.index(by) - 1
        calls = forwards(run, wrap)
        if any(_varies(run, call, place, by) for call in calls):
            yield name, by, forward.module.site(node)


def _several(info: ClassDefinition) -> Iterator[str]:
    """Lists and dicts of at least two layers, each of which has parameters."""
    method = info.methods.get("__init__")
    for node in method.node.body if method and isinstance(method.node, ast.FunctionDef) else ():
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        made = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Attribute) or not isinstance(made, ast.Call):
            continue
        if qualified_call(info, made) in _LISTS and len(made.args) == 1:
            entries = _entries(made.args[0])
            if len(entries) > 1 and all(qualified_call(info, one) in LAYERS for one in entries):
                yield target.attr


def _entries(given: ast.expr) -> list[ast.expr]:
    """What a list or a dict is made of; of a comprehension the one expression twice, for nobody
    chooses among one."""
    if isinstance(given, ast.Dict):
        return given.values
    if isinstance(given, ast.DictComp):
        return [given.value] * 2
    return [given.elt] * 2 if isinstance(given, ast.ListComp) else getattr(given, "elts", [])


def _picked(forward: FunctionDefinition, name: str) -> tuple[ast.Subscript, str] | None:
    """``self.heads[task]`` in a forward, once, by an argument that it leaves as it is."""
    nodes = list(ast.walk(forward.node))
    inside = {one for node in nodes if isinstance(node, _REPEATS) for one in ast.walk(node)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        if not isinstance(node, ast.Subscript) or node in inside:
            continue
        by = node.slice.id if isinstance(node.slice, ast.Name) else ""
        of = node.value.attr if isinstance(node.value, ast.Attribute) else ""
        if of == name and by in forward.parameters and by not in stored:
            return node, by
    return None


def _varies(run: Run, call: RankCall, place: int, by: str) -> bool:
    """Whether the argument is drawn, or computed from the number of a round with a backward."""
    value, node = call.arg(place, by), call.node_of(place, by)
    losses = [(b, b.receiver) for b in backwards(run) if b.receiver and reached(b, [call])]
    after = [b for b, loss in losses if not parameters_of(loss)]
    if value is None or node is None or value.known or not after:
        return False
    rounds = [loop for loop in call.loops if any(loop in one.loops for one in after)]
    numbers = {name for loop in rounds for name in _numbers(loop)}
    return value.has(RANDOM) or not numbers.isdisjoint(_names(*_said(call, node)))


def _said(call: RankCall, node: ast.expr) -> tuple[RankCall, ast.expr]:
    """An argument where it is more than what the function was given itself: ``step(task)``."""
    for given in reversed(call.stack):
        own = given.target.parameters if given.target is not None else ()
        if not isinstance(node, ast.Name) or node.id not in own:
            break
        bound = given.receiver is not None and given.target is not None and given.target.owner
        there = given.node_of(own.index(node.id) - bool(bound), node.id)
        if there is None:
            break
        call, node = given, there
    return call, node


def _numbers(loop: RankLoop) -> Iterator[str]:
    """What a loop that goes over no batches binds; of ``enumerate(loader)`` the number."""
    target = loop.node.target if isinstance(loop.node, ast.For) else None
    if iterated(loop):
        target = target.elts[0] if isinstance(target, ast.Tuple) else None
    for one in ast.walk(target) if target is not None else ():
        if isinstance(one, ast.Name):
            yield one.id


def _names(call: RankCall, node: ast.expr) -> set[str]:
    """The names in an expression, and in what the function gives to them."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    for one in scope_nodes(call):
        if isinstance(one, ast.Assign) and any(getattr(t, "id", "") in found for t in one.targets):
            found |= {n.id for n in ast.walk(one.value) if isinstance(n, ast.Name)}
    return found
