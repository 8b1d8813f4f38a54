"""Seeds that a loader's workers set themselves: the same on all ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.model import Facts, Role
from ddpify.facts.scopes import FunctionInfo
from ddpify.ranks.words import SEEDERS
from ddpify.site import Site

_PLAIN = ("int", "time.time", "time.time_ns", "time")  # what they give tells no ranks apart


def workers_seeds(facts: Facts) -> Iterator[tuple[Site, str]]:
    """``x + int(time.time())`` in ``worker_init_fn=lambda x: np.random.seed(…)``, and each rank's.

    What is made of `torch.initial_seed()` or of another stream differs by rank already.
    """
    for function in _given(facts).values():
        for call in ast.walk(function.node):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            if _qualified(function, call.func) in SEEDERS and _is_plain(function, call.args[0]):
                seed, tree = call.args[0], facts.tree(function.site)
                sums = isinstance(seed, ast.BinOp) and isinstance(seed.op, ast.Add | ast.Mult)
                text = tree.text(seed) if sums or _is_one(seed) else f"({tree.text(seed)})"
                yield tree.site(seed), f"{text} + 1000 * get_rank()"


def _given(facts: Facts) -> dict[Site, FunctionInfo]:
    """The functions of training loaders' workers."""
    given = [
        call.kwargs.get("worker_init_fn")
        for loader in facts.loaders
        if Role.TRAINING in loader.roles
        for call in loader.calls
    ]
    refs = [thing.ref for value in given if value is not None for thing in value.things]
    return {ref.site: ref for ref in refs if isinstance(ref, FunctionInfo)}


def _qualified(function: FunctionInfo, node: ast.expr) -> str:
    """``numpy.random.seed`` of ``np.random.seed``."""
    first, dot, rest = ast.unparse(node).partition(".")
    held = function.module.globals.get(first)
    return f"{held.things[0].name}{dot}{rest}" if held is not None and held.things else first


def _is_plain(function: FunctionInfo, seed: ast.expr) -> bool:
    own = {n.id for n in ast.walk(function.node) if isinstance(n, ast.Name) and _is_set(n)}
    for node in ast.walk(seed):
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in _PLAIN:
            return False
        if isinstance(node, ast.Name) and node.id in own:
            return False
    return True


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript)


def _is_set(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)
