"""Numbers of passes over a loader: a loop's own counter, or one that is added to it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Loop
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, fresh, statement_of
from ddpify.site import Site


def by_passes(
    facts: Facts, loop: Site, place: Site, loaders: tuple[str, ...], first: int = 0
) -> tuple[Edit, ...]:
    """A loop that counts nothing, or steps, gets a counter of its passes over the loaders."""
    variable = _counted(facts, loop) if not first else None
    passes = variable or fresh(facts, loop, "passes")
    told = [f"begin_epoch({name}, {passes})" for name in loaders]
    if variable:
        return (edit(facts, How.BEFORE, place, "\n".join(told)),)
    head = edit(facts, How.BEFORE, loop, f"{passes} = {first}")
    return (head, edit(facts, How.BEFORE, place, "\n".join((*told, f"{passes} += 1"))))


def _counted(facts: Facts, loop: Site) -> str | None:
    """``epoch`` of ``while epoch < 10:``, to which each round adds 1 at its end."""
    node = facts.tree(loop).statement(loop)
    last = node.body[-1] if isinstance(node, ast.While) else None
    if node is None or not isinstance(last, ast.AugAssign) or " += 1" not in ast.unparse(last):
        return None
    name = ast.unparse(last.target)
    written = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]
    stores = [n for n in written if isinstance(n.ctx, ast.Store)]
    skipped = any(isinstance(n, ast.Continue) for n in ast.walk(node))
    return name if len(stores) == 1 and not skipped else None


def counter(facts: Facts, epoch: Loop) -> tuple[str, tuple[Edit, ...]] | None:
    """The loop's counter; an unused ``_`` gets the name ``epoch``."""
    tree = facts.tree(epoch.site)
    node = tree.statement(epoch.site)
    if not isinstance(node, ast.For):
        return None
    target = node.target
    counted = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "enumerate"
    if counted and isinstance(target, ast.Tuple):
        target = target.elts[0]
    if not isinstance(target, ast.Name):
        return None
    if target.id != "_":
        return target.id, ()
    if "epoch" in tree.names(tree.function(node)):
        return None
    return "epoch", (edit(facts, How.REPLACE, tree.site(target), "epoch"),)


def before_iter(facts: Facts, call: Call) -> tuple[Edit, ...]:
    """``batches = iter(loader)`` in a loop over steps begins a pass."""
    tree = facts.tree(call.site)
    node = tree.expression(call.arg_sites[0])
    loops = [x for x in call.where.loops() if x.frame is call.where.frame]
    if not loops or not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return ()
    place, loader = statement_of(facts, call.site), ast.unparse(node)
    if isinstance(tree.statement(loops[0].site), ast.While):
        begun = any(c.order < loops[0].first for c in _begins_alike(facts, call))
        return by_passes(facts, loops[0].site, place, (loader,), int(begun))
    counted = counter(facts, loops[0])
    if counted is None:
        return ()
    variable, renamed = counted
    return (*renamed, edit(facts, How.BEFORE, place, f"begin_epoch({loader}, {variable})"))


def _begins_alike(facts: Facts, call: Call) -> Iterable[Call]:
    """The other calls of ``iter`` on what one is called on."""
    wanted = set(call.args[0].things)
    for other in facts.named("builtins.iter"):
        if other.site != call.site and other.args and wanted & set(other.args[0].things):
            yield other


def in_generator(
    facts: Facts, tree: Tree, node: ast.While, passes: list[ast.For]
) -> tuple[Edit, ...]:
    """``while True: for batch in loader: yield batch``."""
    if len(passes) != 1 or not isinstance(passes[0].iter, (ast.Name, ast.Attribute)):
        return ()
    place = tree.site(passes[0])
    return by_passes(facts, tree.site(node), place, (ast.unparse(passes[0].iter),))
