"""What is left of FSDP1 once the edits are made: named, or taken out of the imports.

Assignments that nothing reads, or nothing but what the edits of a conversion take away.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.conversion.code import RULE
from ddpify.rules.conversion.names import CHOICES, CLASS, mentions, short
from ddpify.source import Site

_INSTEAD = {
    f"{CLASS}.summon_full_params": "take get_model_state_dict(model, options=StateDictOptions("
    "full_state_dict=True)), or model.unshard() and reshard()",
    "enable_wrap": "wrap the model with an auto_wrap_policy",
    "wrap": "wrap the model with an auto_wrap_policy",
    "LocalStateDictConfig": "LOCAL_STATE_DICT is gone: take SHARDED_STATE_DICT",
    f"{CLASS}.scatter_full_optim_state_dict": "let all ranks read the file, and load"
    " FSDP.optim_state_dict_to_load(model, optimizer, state)",
    f"{CLASS}.shard_full_optim_state_dict": "load FSDP.optim_state_dict_to_load(model, optimizer,"
    " state)",
    f"{CLASS}.rekey_optim_state_dict": "files of FSDP2 have names already",
    "ShardingStrategy": "write ShardingStrategy.FULL_SHARD or SHARD_GRAD_OP",
}
_FULL_IN_EVALUATION = "FSDP_USE_FULL_PREC_IN_EVAL"
_MAKES = "functools"
_NAMES = ("_fsdp_wrapped_module", "_flat_param", _FULL_IN_EVALUATION)


def dead(facts: Facts, tree: Tree) -> Iterator[ast.AST]:
    """The functions at the top of a file whose names nothing in the program reads."""
    for node in tree.module.body:
        plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
        if plain and getattr(node, "name", "") not in _read(facts):
            yield node


@lru_cache(maxsize=8)
def _read(facts: Facts) -> frozenset[str]:
    """The names that are read, or may be by a text; imports alone read none."""
    found = set[str]()
    for node in (node for tree in facts.trees.values() for node in tree.nodes()):
        if isinstance(node, ast.alias) and node.asname:
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        else:
            found |= {getattr(node, "attr", ""), getattr(node, "id", "")}
    return frozenset(found)


def left(facts: Facts, edits: Sequence[Edit]) -> Iterator[Finding]:
    """One finding per thing of FSDP1 that no edit takes away."""
    for tree in facts.trees.values():
        idle = {n: f for f in dead(facts, tree) for n in ast.walk(f)}
        told = set[ast.AST]()
        for node, name in mentions(tree):
            function = idle.get(node)
            if function is not None and function not in told:
                told.add(function)
                what = "nothing calls this function: its FSDP1 is left as it is"
                yield Finding(RULE, tree.site(node), what, Severity.NOTE)
            kept = function is None and not is_gone(tree.site(node), edits, tree)
            if kept and not _is_choice(tree, node, name):
                yield _named(tree.site(node), name)
        yield from _inside(tree, edits)


def _inside(tree: Tree, edits: Sequence[Edit]) -> Iterator[Finding]:
    """Names from the inside of FSDP1, in attributes and in texts."""
    for node in tree.nodes():
        text = node.value if isinstance(node, ast.Constant) else getattr(node, "attr", "")
        named = next((one for one in _NAMES if isinstance(text, str) and one in text), "")
        if named and not is_gone(tree.site(node), edits, tree):
            yield _named(tree.site(node), named)


def _named(site: Site, name: str) -> Finding:
    what = f"`{name.replace(CLASS, 'FSDP')}` has no counterpart that is written here"
    advice = _INSTEAD.get(name, "see docs/fsdp1.md for what to write")
    return Finding(RULE, site, what, Severity.ERROR, advice=advice)


def _is_choice(tree: Tree, node: ast.AST, name: str) -> bool:
    """``StateDictType.FULL_STATE_DICT`` in settings of the program, and their types."""
    owner, _, choice = name.partition(".")
    parent = tree.parent(node)
    annotation = isinstance(parent, ast.arg | ast.AnnAssign) and parent.annotation is node
    return owner in CHOICES and (bool(choice) or annotation)


def is_gone(site: Site, edits: Iterable[Edit], tree: Tree) -> bool:
    """Whether an edit replaces the text at a place."""
    return any(site.within(gone) for edit in edits for gone in _taken(edit, tree))


def _taken(edit: Edit, tree: Tree) -> Iterator[Site]:
    if edit.site.path != tree.source.path:
        return
    if edit.how is How.BODY:
        statement = tree.statement(edit.site)
        if isinstance(statement, ast.With):
            yield from (tree.site(item.context_expr) for item in statement.items)
    elif edit.how is How.DELETE or (edit.how is How.REPLACE and "{}" not in edit.code):
        yield edit.site


def tidied(
    facts: Facts, edits: Sequence[Edit], ours: Callable[[str], object] = short, whose: str = "FSDP1"
) -> Iterator[Finding]:
    """Imports of names that nothing uses any more; ``ours``: of which dotted names."""
    what = f"names of {whose} that nothing uses any more"
    for tree in facts.trees.values():
        if not any(edit.site.path == tree.source.path for edit in edits):
            continue
        for statement in (n for n in tree.nodes() if isinstance(n, ast.ImportFrom) and not n.level):
            own = [one for one in statement.names if ours(f"{statement.module}.{one.name}")]
            gone = [one for one in own if not _is_kept(tree, one, edits)]
            if gone:
                yield _import(tree, statement, [n for n in statement.names if n not in gone], what)
        yield from _idle_module(tree, edits, what)


def _idle_module(tree: Tree, edits: Sequence[Edit], what: str) -> Iterator[Finding]:
    """``import functools``, if policies alone were made with it."""
    for statement in tree.module.body:
        if isinstance(statement, ast.Import) and [one.name for one in statement.names] == [_MAKES]:
            bound = statement.names[0].asname or _MAKES
            used = [n for n in tree.nodes() if isinstance(n, ast.Name) and n.id == bound]
            if used and all(is_gone(tree.site(n), edits, tree) for n in used):
                yield _import(tree, statement, (), what)


def _is_kept(tree: Tree, one: ast.alias, edits: Sequence[Edit]) -> bool:
    bound = one.asname or one.name
    used = (n for n in tree.nodes() if isinstance(n, ast.Name) and n.id == bound)
    copied = re.compile(rf"\b{bound}\b")
    if any(copied.search(e.code) for e in edits if e.site.path == tree.source.path):
        return True
    return any(not is_gone(tree.site(n), edits, tree) for n in used)


def _import(
    tree: Tree, statement: ast.ImportFrom | ast.Import, kept: Sequence[ast.alias], what: str
) -> Finding:
    site = tree.site(statement)
    if not kept:
        return Finding(RULE, site, what, Severity.ERROR, (Edit(How.DELETE, site, ""),))
    module = getattr(statement, "module", None)
    code = ast.unparse(ast.ImportFrom(module, list(kept), 0))
    return Finding(RULE, site, what, Severity.ERROR, (Edit(How.REPLACE, site, code),))


_BY_ANY_NAME: Final = ("locals", "vars", "eval", "exec")


def idle_assignment(tree: Tree, node: ast.expr) -> ast.stmt | None:
    """The assignment of an object to a name of a function that nothing reads."""
    name = _bound(tree, node)
    acts = any(isinstance(n, ast.Call | ast.Await) and n is not node for n in ast.walk(node))
    if not name or acts or any(_reads(tree.function(node), name)):
        return None
    return tree.statement(tree.site(node))


def idle_choices(facts: Facts, edits: Sequence[Edit]) -> Iterator[Finding]:
    """``prefetch = BackwardPrefetch.BACKWARD_PRE``, if edits take away what reads it."""
    for tree in facts.trees.values():
        for node, choice in mentions(tree):
            name = _bound(tree, node) if choice.partition(".")[0] in CHOICES else ""
            statement = tree.statement(tree.site(node))
            if name and statement is not None and _is_idle(tree, statement, name, edits):
                gone = Edit(How.DELETE, tree.site(statement), "")
                what = "nothing reads this choice of FSDP1 any more"
                yield Finding(RULE, gone.site, what, Severity.ERROR, (gone,))


def _bound(tree: Tree, node: ast.expr) -> str:
    """The name of a function that is bound to a value and no more; not one alone in its block."""
    statement = tree.parent(node)
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return ""
    target, function = statement.targets[0], tree.function(node)
    local = isinstance(function, ast.FunctionDef) and len(tree.block(statement)) > 1
    return target.id if local and isinstance(target, ast.Name) else ""


def _is_idle(tree: Tree, statement: ast.stmt, name: str, edits: Sequence[Edit]) -> bool:
    copied = re.compile(rf"\b{name}\b")
    if any(copied.search(e.code) for e in edits if e.site.path == tree.source.path):
        return False
    reads = _reads(tree.function(statement), name)
    return all(is_gone(tree.site(one), edits, tree) for one in reads)


def _reads(function: ast.AST, name: str) -> Iterator[ast.AST]:
    """Where a function, or one in it, may read a name: also by ``locals()`` and ``global``."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield from [node] if node.id in (name, *_BY_ANY_NAME) else []
        elif isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            yield node
