"""Files that are opened for both: what is read from them no stand-in can give.

``h5py.File(path, "r+")`` opens a data set, which all ranks need, as often as a file to write.
"""

from __future__ import annotations

import ast
import json

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.python.writers import FUNCTIONS
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit
from ddpify.source import Site

WRITES = frozenset(
    """close copy create_dataset create_group flush require_dataset require_group resize seek
    truncate write writelines""".split()
)
FILLS = FUNCTIONS.keys() | {"torch.save"}


def is_read(facts: Facts, call: Call) -> bool:
    """Whether a file that is opened for reading and writing may be read."""
    return _reads_too(call) and not _only_written(facts, call)


def _only_written(facts: Facts, call: Call) -> bool:
    uses = _uses(facts, call)
    names = {made.site: made.name for made in facts.calls}
    return bool(uses) and all(_writes(*use) or _is_filled(*use, names) for use in uses)


def read_only(facts: Facts, call: Call) -> tuple[Edit, ...]:
    """Opened for reading, where nothing is written to it; none where something may be."""
    uses = _uses(facts, call)
    mode, site = call.arg(1, "mode"), call.kwarg_sites.get("mode")
    if site is None and len(call.arg_sites) > 1:
        site = call.arg_sites[1]
    text = mode.const if mode is not None and isinstance(mode.const, str) else ""
    plain = text.startswith("r+") and bool(uses)
    if site is None or not plain or any(_changes(*use) for use in uses):
        return ()
    return (edit(facts, How.REPLACE, site, json.dumps(text.replace("+", ""))),)


def _reads_too(call: Call) -> bool:
    mode = call.arg(0 if call.name == ".open" else 1, "mode")
    text = mode.const if mode is not None and isinstance(mode.const, str) else ""
    return "+" in text or (call.name == "h5py.File" and "a" in text)


def _uses(facts: Facts, call: Call) -> list[tuple[Tree, ast.AST]]:
    """Where the name of an open file is read; none where it has no name of its function."""
    tree = facts.tree(call.site)
    node = tree.statement(call.site)
    name = _name(node, tree.expression(call.site))
    inside = tree.nodes(tree.function(node)) if node is not None and name else ()
    names = (n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return [(tree, n) for n in names if n.id == name]


def _name(node: ast.stmt | None, opened: ast.expr | None) -> str:
    target: ast.expr | None = None
    if isinstance(node, ast.Assign) and node.value is opened:
        target = node.targets[0]
    for item in node.items if isinstance(node, ast.With) else ():
        target = item.optional_vars if item.context_expr is opened else target
    return target.id if isinstance(target, ast.Name) else ""


def _writes(tree: Tree, node: ast.AST) -> bool:
    """Whether a use of an open file takes nothing from it."""
    above = tree.parent(node)
    if isinstance(above, ast.Subscript) and above.value is node:
        return isinstance(above.ctx, (ast.Store, ast.Del)) or _writes(tree, above)
    return isinstance(above, ast.Attribute) and above.attr in WRITES


def _is_filled(tree: Tree, node: ast.AST, names: dict[Site, str]) -> bool:
    """``torch.save(states, file)``, ``pickle.dump(rows, file)``."""
    above = tree.parent(node)
    if not isinstance(above, ast.Call) or node not in above.args:
        return False
    return names.get(tree.site(above)) in FILLS


def _changes(tree: Tree, node: ast.AST) -> bool:
    """Whether a use of an open file changes it, or may: only what is taken by a key does not."""
    above = tree.parent(node)
    if isinstance(above, ast.Attribute):
        return above.attr not in ("close", "read", "readline", "readlines", "keys", "attrs")
    if not isinstance(above, ast.Subscript) or not isinstance(above.ctx, ast.Load):
        return True
    over = tree.parent(above)
    if isinstance(over, ast.Subscript) and over.value is above:
        return not isinstance(over.ctx, ast.Load)
    return isinstance(over, ast.Attribute) and over.attr in WRITES
