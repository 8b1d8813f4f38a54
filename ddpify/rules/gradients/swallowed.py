"""Errors in a step, or in another round in which ranks meet, that a handler passes over. ::

for x, y in loader:
    try:
        step(x, y)
    except RuntimeError as error:           # one rank is out of memory
        if get_world_size() > 1:
            raise                           # the others wait for it
        print("skipped", error)

A handler around the whole training is one, too: a rank that leaves it ends, and the others wait.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.events import Where
from ddpify.facts.model import Facts
from ddpify.facts.tree import FUNCTIONS, Tree
from ddpify.ranks.attempts import attempt
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.edits import edit
from ddpify.source import Site

END = "if get_world_size() > 1:\n    raise  # other ranks would wait for this one"


def swallowed(facts: Facts, meetings: Iterable[tuple[Where, Site]]) -> Iterable[Finding]:
    """``try: ... loss.backward() ... except Exception: continue``: one rank skips the step."""
    done: set[Site] = set()
    evaluating = (
        (forward.call.where, loop.site)  # what is counted in it is put together after it
        for forward in facts.evaluation_forwards
        for loop in forward.call.where.loops()[:1]
    )
    for where, meeting in (*meetings, *evaluating):
        for node, tree in _tried(facts, where, meeting):
            if tree.site(node) in done:
                continue
            done.add(tree.site(node))
            sites = {handler.site for handler in attempt(tree.source, node).passes_over()}
            for handler in (one for one in node.handlers if tree.site(one) in sites):
                yield Finding(
                    "DDP404",
                    tree.site(handler),
                    "a rank that fails here would go on alone while the others wait for it",
                    Severity.WARNING,
                    (edit(facts, How.BEFORE, tree.site(handler.body[0]), END),),
                    because=((meeting, "the ranks meet here"),),
                )


def _tried(facts: Facts, where: Where, meeting: Site) -> Iterator[tuple[ast.Try, Tree]]:
    """The ``try`` statements around a place in a loop: around a step, or all of the training."""
    path = (*where.stack, meeting)
    if not where.loops():
        return
    for site in path:
        tree = facts.tree(site)
        below = tree.statement(site)
        for above in tree.ancestors(below) if below is not None else ():
            if isinstance(above, FUNCTIONS):
                break
            if isinstance(above, ast.Try) and below in above.body:
                yield above, tree
            below = above if isinstance(above, ast.stmt) else below
