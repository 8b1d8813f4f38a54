"""What ranks dispose of may be mended: they wait before a file is read, and rank 0 decides.

The reading of the result says what it would mend, in the text that it read (``Finding.mends``);
here that becomes an edit of the original. The result is read again with it, so that a barrier to
which some ranks do not come is found there, as one that any rule wrote.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How
from ddpify.rules.edits import edit
from ddpify.source import Site

Original = Callable[[Site], int | None]  # the line that a line of the result was


def mended(
    found: Finding, original: Original, facts: Sequence[Facts], made: Collection[Finding]
) -> Finding | None:
    """The finding with a fix of the original; None where that was tried or has no place."""
    fix = [_carried(one, original, facts) for one in found.mends]
    edits = tuple(one for one in fix if one is not None)
    if not edits or len(edits) < len(fix) or any(edits == one.fix for one in made):
        return None
    site = edits[0].site
    return Finding(found.rule, site, found.message, found.severity, edits, mends=found.mends)


def _carried(one: Edit, original: Original, facts: Sequence[Facts]) -> Edit | None:
    line = original(one.site)
    known = next((each for each in facts if one.site.path in each.trees), None)
    if line is None or known is None:
        return None
    place = _place(known.trees[one.site.path], one.how, line)
    return edit(known, one.how, place, one.code) if place is not None else None


def _place(tree: Tree, how: How, line: int) -> Site | None:
    """The test of an `if` that a line belongs to, or the innermost statement."""
    around = [n for n in tree.nodes() if isinstance(n, ast.stmt) and n.lineno <= line <= _end(n)]
    if how is How.REPLACE:
        tests = [n.test for n in around if isinstance(n, ast.If) and line <= _end(n.test)]
        return tree.site(tests[-1]) if tests else None
    inner = max(around, key=lambda node: (node.lineno, -_end(node)), default=None)
    return tree.site(inner) if inner is not None else None


def _end(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno
