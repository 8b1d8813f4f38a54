"""Gate what should happen once; shared by the console, file, directory and tracker rules."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts import later
from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Call
from ddpify.facts.marks_left import changes, leaves_marks
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.edits import MAIN, edit, gate, once, statement_of
from ddpify.rules.effects.collectives import needs_all_ranks
from ddpify.rules.effects.gates import widest_gate
from ddpify.rules.effects.leftovers import leaves_more, moves_stream
from ddpify.rules.effects.read_back import is_read
from ddpify.source import Site


def gated(
    facts: Facts, rule: str, kinds: tuple[EffectKind, ...], message: str, severity: Severity
) -> Iterable[Finding]:
    """One finding per statement with an effect of these kinds that all ranks would run."""
    lifted, blocks = _lifted(facts, kinds), _gated_blocks(facts)
    for site, calls in once((*_direct(facts, kinds), *lifted)).items():
        if all(c.where.one_rank() for c in calls) or any(site.within(block) for block in blocks):
            continue
        fix = gated_statement(facts, calls[0])
        yield Finding(rule, site, message, severity, fix, "" if fix else _advice(facts, calls[0]))


def _direct(facts: Facts, kinds: tuple[EffectKind, ...]) -> list[Call]:
    return [
        e.call
        for e in facts.effects
        if e.kind in kinds and e.call.alone and e.call.where.function not in facts.helpers
    ]


def _lifted(facts: Facts, kinds: tuple[EffectKind, ...]) -> list[Call]:
    """Calls of helpers whose first effect is of these kinds."""
    found = []
    for call in facts.everywhere:
        if call.target in facts.helpers and call.where.function not in facts.helpers:
            first = next(e for e in facts.effects if e.call.where.function is call.target)
            kind = EffectKind.FILE if first.kind is EffectKind.OPEN else first.kind
            if kind in kinds:
                found.append(call)
    return found


def gated_statement(facts: Facts, call: Call) -> tuple[Edit, ...]:
    """Gate the statement of a call, unless other ranks would miss what else it does."""
    statement = call.where.statement
    if not needs_all_ranks(facts, statement) and not leaves_more(facts, statement):
        return (widest_gate(facts, statement),)
    if call.name != "builtins.print":
        return ()
    return (edit(facts, How.REPLACE, call.callee, "print_on_main"),)


def _advice(facts: Facts, call: Call) -> str:
    statement = call.where.statement
    if needs_all_ranks(facts, statement) or leaves_more(facts, statement):
        return (
            "compute its values before it, on all ranks, and run the rest on the main process only"
        )
    return "run it on the main process only"


def null_writer(facts: Facts, site: Site) -> Edit:
    """Give the other ranks a writer that swallows everything."""
    return edit(facts, How.REPLACE, site, f"{{}} if {MAIN} else NullWriter()")


def opened(facts: Facts, call: Call) -> Edit:
    """Gate a whole ``with open(...)`` block, or open a stand-in on the other ranks."""
    statement = statement_of(facts, call.site)
    whole = _is_gated_whole(facts, call, statement)
    return gate(facts, statement) if whole else null_writer(facts, call.site)


def _is_gated_whole(facts: Facts, call: Call, statement: Site) -> bool:
    """Whether nothing that other ranks miss is done where a file is opened."""
    tree = facts.tree(call.site)
    node = tree.statement(call.site)
    if needs_all_ranks(facts, statement) or leaves_more(facts, statement):
        return False
    if moves_stream(facts, statement):
        return False
    if call.alone or isinstance(node, ast.Expr):
        return True
    inside = (call.target for call in facts.everywhere if call.site.within(statement))
    called = [target for target in inside if target is not None]
    marks = any(leaves_marks(target.node, facts.trees.values()) for target in called)
    return isinstance(node, ast.With) and not marks and _self_contained(facts, call, node)


def _gated_blocks(facts: Facts) -> list[Site]:
    """The ``with open(...)`` blocks that rank 0 runs alone: in them is no second gate."""
    found = []
    for call in (effect.call for effect in facts.effects if effect.kind is EffectKind.OPEN):
        block = statement_of(facts, call.site)
        node = facts.tree(block).statement(block)
        written = isinstance(node, ast.With) and not is_read(facts, call)
        if written and call.where.function not in facts.helpers:
            found += [block] if _is_gated_whole(facts, call, block) else []
    return found


def _self_contained(facts: Facts, call: Call, node: ast.With) -> bool:
    """Nothing bound in the block is read after it, and it cannot leave the function."""
    if len(node.items) != 1:
        return False
    inner = [n for s in node.body for n in ast.walk(s)]
    if any(
        isinstance(n, (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.Global)) for n in inner
    ):
        return False
    bound = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if any(changes(n, bound) and not _is_for_block(facts, call, node, n) for n in inner):
        return False
    tree = facts.tree(call.site)
    names = (n for n in ast.walk(node.items[0]) if isinstance(n, ast.Name))
    own = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    return not any(tree.read_after(node, name) for name in bound) and not any(
        _is_asked_later(tree, node, name) for name in own
    )


def _is_for_block(facts: Facts, call: Call, node: ast.With, change: ast.AST) -> bool:
    """``self.writer = csv.writer(file)``, which nothing outside the block reads."""
    frame = call.where.frame
    if not isinstance(change, ast.Attribute) or frame.self_thing is None:
        return False
    own = f"{next(iter(frame.parameters), '')}.{change.attr}"
    return ast.unparse(change) == own and not later.read_after(facts.trees, frame, node, own)


def _is_asked_later(tree: Tree, node: ast.With, name: str) -> bool:
    """``f.close()`` below the block, where no other one calls its file ``f``."""
    end = tree.site(node.body[-1])
    reads = (n for n in tree.reads(tree.function(node), name) if end < tree.site(n))
    again = [n for n in reads if not tree.site(n).within(end) and not _is_bound_by(tree, n, name)]
    return bool(again) and tree.read_after(node, name)


def _is_bound_by(tree: Tree, node: ast.AST, name: str) -> bool:
    """Whether a block around it opens what it calls so."""
    blocks = (above for above in tree.ancestors(node) if isinstance(above, ast.With))
    bound = (n for block in blocks for item in block.items for n in ast.walk(item))
    return any(
        isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name for n in bound
    )
