"""What is said of learning rates: they go by the samples of a step, which may be as before."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.advice.optimizers import KNOWN
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree, last_name
from ddpify.source import Site

_HOOK: Final = "configure_optimizers"
_RULE: Final = "linear scaling rule, Goyal et al. 2017"


def rate(whole: bool, rates: str = "", batch: str = "") -> str:
    """The sentence; ``whole``: all ranks together take the batches of one process.

    ``rates`` and ``batch`` say what they are and where that is written, in brackets.
    """
    if whole:
        return (
            f"learning rate{rates}: as it is, because the global batch{batch} is as it was; a"
            f" larger global batch by a factor k: times k, with a warm-up ({_RULE})"
        )
    return (
        f"learning rate{rates}: the global batch{batch} is N times as large; times N, with a"
        f" warm-up ({_RULE}): advice, to be confirmed by a run"
    )


def rate_of_module(facts: Facts, loaders: Iterable[Site], whole: bool) -> str:
    """The sentence for a program in Lightning's Trainer; ``loaders``: what is trained on."""
    trees = ((facts.tree(site), site) for site in loaders if site.path in facts.trees)
    made = ((tree, tree.expression(site)) for tree, site in trees)
    sizes = ((tree, _given(call, "batch_size")) for tree, call in made)
    return rate(whole, _quoted(_rates(facts)), _quoted(sizes))


def _rates(facts: Facts) -> Iterator[tuple[Tree, ast.expr | None]]:
    """The rates that are written where Lightning has optimizers made."""
    for tree in facts.trees.values():
        for hook in tree.nodes():
            if isinstance(hook, ast.FunctionDef) and hook.name == _HOOK:
                calls = (node for node in tree.nodes(hook) if isinstance(node, ast.Call))
                made = (call for call in calls if last_name(call.func) in KNOWN)
                yield from ((tree, _given(call, "lr")) for call in made)


def _given(call: ast.AST | None, name: str) -> ast.expr | None:
    """The second argument of a call, which has this name."""
    if not isinstance(call, ast.Call) or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    named = (one.value for one in call.keywords if one.arg == name)
    return next(named, call.args[1] if len(call.args) > 1 else None)


def _quoted(places: Iterable[tuple[Tree, ast.expr | None]]) -> str:
    """What is written in some places, and where."""
    texts = (f"`{tree.text(one)}`, {tree.site(one)}" for tree, one in places if one is not None)
    said = "; ".join(dict.fromkeys(texts))
    return f" ({said})" if said else ""
