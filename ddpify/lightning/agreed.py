"""What processes find or name before ``fit``, each for itself: rank 0's on all of them.

A clock is wrapped where it is read, what is looked for where it is found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Import
from ddpify.source import Site

_CLOCK: Final = "DDP962"
_NAME: Final = "DDP506"  # the same clock, where rank 0 writes what others read
_CHECKPOINT: Final = "DDP956"
_HELPER: Final = "from_rank_zero"


def fixed(facts: Facts, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, those of what is found or named before ``fit`` with a fix."""
    known = list(findings)
    named = {one.site for one in known if one.rule == _CLOCK}
    for one in known:
        mine = one.site in named if one.rule == _NAME else one.site.path in facts.trees
        site = _place(facts, one) if mine and not one.fix else None
        if site is None:
            yield one
        else:
            wanted = Import(facts.runtime[0], _HELPER)
            yield replace(
                one, fix=(Edit(How.REPLACE, site, f"{_HELPER}({{}})", imports=(wanted,)),)
            )


def _place(facts: Facts, finding: Finding) -> Site | None:
    """The expression of which all ranks take rank 0's."""
    if finding.rule in (_CLOCK, _NAME):
        return finding.site
    tree = facts.tree(finding.site)
    call = tree.expression(finding.site)
    if finding.rule != _CHECKPOINT or not isinstance(call, ast.Call):
        return None
    path = _path(call)
    if path is None:
        return None
    found = _found(tree, path) if isinstance(path, ast.Name) else None
    return tree.site(found or path)


def _path(call: ast.Call) -> ast.expr | None:
    """The ``ckpt_path`` of ``fit``, ``validate`` and their kin."""
    named = next((one.value for one in call.keywords if one.arg == "ckpt_path"), None)
    position = 4 if getattr(call.func, "attr", "") in ("fit", "predict") else 2
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    return named or (call.args[position] if len(call.args) > position and not starred else None)


def _found(tree: Tree, name: ast.Name) -> ast.expr | None:
    """What gives a name its only value, at a place that all ranks come to."""
    function = tree.function(name)
    for node in tree.nodes(function):
        if not isinstance(node, ast.Assign) or tree.function(node) is not function:
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == name.id and tree.is_kept(target):
            plain = len(node.targets) == 1 and tree.block(node) is _body(function)
            return node.value if plain else None
    return None


def _body(function: ast.AST) -> object:
    """The statements of a function, or of the file."""
    return getattr(function, "body", None)
