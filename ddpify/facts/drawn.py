"""What an epoch draws before it makes its loader."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Frame, Loop
from ddpify.python import words
from ddpify.source import Site


def drawn_for(facts: Facts, made: Call, epoch: Loop) -> Iterator[Site]:
    """Draws in the functions that make a loader, and before it in the epoch's round."""
    frame: Frame | None = made.where.frame
    while frame is not None:
        inside = frame is epoch.frame
        tree = facts.trees[frame.module.source.path]
        scope = tree.statement(epoch.site) if inside else getattr(frame.function, "node", None)
        if scope is None:
            return
        depth = len(frame.stack)
        here = made.where.stack[depth] if len(made.where.stack) > depth else made.site
        for node in tree.nodes(scope):
            early = isinstance(node, ast.Call) and tree.site(node) < here
            if isinstance(node, ast.Call) and (early or not inside) and _draws(frame, node):
                yield tree.site(node)
        if inside:
            return
        frame = frame.caller


def _draws(frame: Frame, call: ast.Call) -> bool:
    """Whether a call draws from a process's stream: ``random.sample``, also in a lambda."""
    root, dot, rest = ast.unparse(call.func).partition(".")
    held = frame.module.globals.get(root)
    names = [f"{thing.name}{dot}{rest}" for thing in held.things] if held is not None else []
    starts = tuple(start for start, _ in words.DRAWS)
    seeds = rest.endswith("seed") or any(name in words.GENERATORS for name in names)
    return not seeds and any(name.startswith(starts) for name in names)
