"""What in a program of Lightning's Trainer is not followed on several devices: refused, for now.

It is looked for by the names that Lightning and torch give it. What decides over samples and steps
else is found by rules (DDP965 and those behind it).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.outcome import Refusal
from ddpify.settings import Settings

_DRAWN: Final = ("sampler", "batch_sampler")


def hazards(facts: Facts, settings: Settings) -> Iterator[Refusal]:
    """One refusal per place."""
    whole = settings.batch_size == "global"  # rank 0 draws, and its batches are divided
    for tree in facts.trees.values():
        for node in tree.nodes():
            if why := _of_sampler(node) * (not whole) or _of_steps(node):
                site = tree.site(node)
                yield Refusal(f"{site}: {why}", site)


def _of_sampler(node: ast.AST) -> str:
    if not isinstance(node, ast.keyword) or node.arg not in _DRAWN:
        return ""
    why = "samples that a sampler chooses are dealt by Lightning, but drawn by each process"
    drawn = not isinstance(node.value, ast.Constant)
    return f"{why} for itself: is it the same on all? deal them by hand" * drawn


def _of_steps(node: ast.AST) -> str:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return ""
    named = any(getattr(t, "attr", "") == "automatic_optimization" for t in node.targets)
    why = "steps by hand are not followed: make them by automatic optimization"
    return why * (named and node.value.value is False)
