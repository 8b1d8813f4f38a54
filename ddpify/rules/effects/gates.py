"""The smallest gate for what should happen once: of a statement, a loop around it, or an `if`."""

from __future__ import annotations

import ast

from ddpify.facts.effects import EffectKind
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import MAIN, edit, gate
from ddpify.rules.effects.collectives import needs_all_ranks
from ddpify.rules.effects.leftovers import leaves_more
from ddpify.source import Site

ONCE = (EffectKind.CONSOLE, EffectKind.FILE, EffectKind.DIRECTORY)
# What the head of a loop may call: it would be evaluated on the main process only.
PURE = frozenset("range enumerate zip sorted reversed len list tuple items keys values".split())


def widest_gate(facts: Facts, statement: Site) -> Edit:
    """Gate a statement, or what is around it and does nothing else.

    ``for name in names: makedirs(name)`` is gated whole, ``if best: copy(...)`` gets a second
    condition.
    """
    tree = facts.tree(statement)
    widest = widest_once(facts, statement)
    node = tree.statement(widest)
    if isinstance(node, ast.If):
        return edit(facts, How.REPLACE, tree.site(node.test), f"{{}} and {MAIN}")
    return gate(facts, widest)


def widest_once(facts: Facts, statement: Site) -> Site:
    """The outermost loop, or the `if`, that holds only what should happen once."""
    tree = facts.tree(statement)
    node = tree.statement(statement)
    while node is not None:
        above = tree.parent(node)
        if not (isinstance(above, ast.If | ast.For) and _does_nothing_else(facts, tree, above)):
            break
        node = above
        if isinstance(node, ast.If):
            break
    return tree.site(node) if node is not None else statement


def _does_nothing_else(facts: Facts, tree: Tree, node: ast.If | ast.For) -> bool:
    """Whether a block holds only statements that the main process alone should run."""
    if node.orelse or _reduces(facts, tree.site(node)):
        return False
    if isinstance(node, ast.For) and not _has_pure_head(tree, node):
        return False
    return all(_happens_once(facts, tree, statement) for statement in node.body)


def _reduces(facts: Facts, site: Site) -> bool:
    """Whether ranks meet inside, or will, to combine a number before it is shown."""
    shown = any(
        call.site.within(site) and any(part.how for part in parts) for call, parts in facts.sinks
    )
    wrapped = any(m.home is not None and m.home.statement.within(site) for m in facts.models)
    return shown or wrapped or needs_all_ranks(facts, site)


def _has_pure_head(tree: Tree, node: ast.For) -> bool:
    calls = [inner for inner in ast.walk(node.iter) if isinstance(inner, ast.Call)]
    names = {ast.unparse(call.func).rpartition(".")[2] for call in calls}
    targets = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    return names <= PURE and not any(tree.read_after(node, name) for name in targets)


def _happens_once(facts: Facts, tree: Tree, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.For):
        return _does_nothing_else(facts, tree, statement)
    site = tree.site(statement)
    if _goes(facts, tree, statement):
        return True
    if leaves_more(facts, site):
        return False
    calls = [e.call for e in facts.effects if e.kind in ONCE and e.call.alone]
    calls += [call for call in facts.everywhere if call.target in facts.helpers]
    mine = [call for call in calls if call.where.statement == site]
    return bool(mine) and not any(call.where.one_rank() for call in mine)


def _goes(facts: Facts, tree: Tree, statement: ast.stmt) -> bool:
    """``model = nn.DataParallel(model)``, which DDP302 removes."""
    made = statement.value if isinstance(statement, ast.Assign) else None
    if not (isinstance(made, ast.Call) and made.args):
        return False
    calls = {call.site for model in facts.models for call in model.data_parallel}
    return tree.site(made) in calls and tree.text(statement).startswith(
        f"{tree.text(made.args[0])} = "
    )
