"""Loaders that are begun again before the epoch is over, of which alone their samplers are told. ::

except StopIteration:
    batches = iter(loader)   # one process draws a new order here

while True:
    yield from loader        # in a generator that steps of several epochs take from
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.events import Call
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.tree import FUNCTIONS, Tree
from ddpify.facts.values import Thing
from ddpify.names import INSTALLED
from ddpify.rules.shared.telling import draws_itself
from ddpify.rules.shared.undivided import takes_no_sampler
from ddpify.source import Site

_LOOPS = (ast.While, ast.For)
AGAIN = f"{INSTALLED}.new_pass"


def restarts(facts: Facts) -> Iterator[tuple[Site, Thing]]:
    """Where such a loader stands, and the loader."""
    done = {call.site for call in facts.named(AGAIN)}
    told = {
        loader: loop.epoch.site
        for loop in facts.training
        if loop.epoch is not None
        for loader in loop.loaders
        if not draws_itself(loader) and not takes_no_sampler(facts, loader)
    }
    for call in facts.named("builtins.iter"):
        site = call.arg_site(0, "")
        for loader in loaders_in(call.args[0]) if call.args and site else ():
            if site and site not in done and loader in told and _again(facts, call, told[loader]):
                yield site, loader
    for tree in facts.trees.values():
        for over in _endless(tree):
            value = facts.values.get(tree.site(over))
            for loader in loaders_in(value) if value is not None else ():
                if loader in told and tree.site(over) not in done:
                    yield tree.site(over), loader


def _again(facts: Facts, call: Call, epoch: Site) -> bool:
    """Whether a pass may begin more than once in an epoch."""
    loops = [loop.site for loop in call.where.loops()]
    if epoch not in loops:
        return False
    return facts.tree(call.site).handles(call.site) or loops[0] != epoch


def _endless(tree: Tree) -> Iterator[ast.expr]:
    """What generators go over again and again."""
    for node in tree.nodes():
        over = node.value if isinstance(node, ast.YieldFrom) else None
        if isinstance(node, ast.For) and any(isinstance(n, ast.Yield) for n in ast.walk(node)):
            over = node.iter
        if over is not None and _in_loop(tree, node):
            yield over


def _in_loop(tree: Tree, node: ast.AST) -> bool:
    for above in tree.ancestors(node):
        if isinstance(above, FUNCTIONS):
            return False
        if isinstance(above, _LOOPS):
            return True
    return False
