"""``len(loader.sampler)``: all samples in one process, this rank's share once they are dealt."""

from __future__ import annotations

import ast

from ddpify.facts.events import Access
from ddpify.facts.model import Facts, Loader
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit


def of_all_ranks(facts: Facts, loader: Loader) -> tuple[Edit, ...]:
    """``len(loader.sampler) * get_world_size()`` wherever a training loader alone is asked."""
    found: dict[Edit, None] = {}
    for access in _asked(facts, loader):
        call = _use(facts, access)
        if set(access.base.things) <= set(loader.things) and _is_length(call):
            site = facts.tree(access.base_site).site(call)
            found[edit(facts, How.REPLACE, site, "({} * get_world_size())")] = None
    return tuple(found)


def used_otherwise(facts: Facts, loader: Loader) -> bool:
    """Whether a loader's sampler is asked for anything but its length, and told the epoch."""
    uses = (_use(facts, access) for access in _asked(facts, loader))
    return not all(_is_length(use) or _is_set_epoch(use) for use in uses)


def is_length(facts: Facts, access: Access) -> bool:
    """Whether all that is done with an attribute is to ask how long it is."""
    return not access.stored and _is_length(_use(facts, access))


def _asked(facts: Facts, loader: Loader) -> list[Access]:
    asked = (access for access in facts.accesses if access.attribute == "sampler")
    return [access for access in asked if set(access.base.things) & set(loader.things)]


def _use(facts: Facts, access: Access) -> ast.AST:
    """What is done with ``loader.sampler``."""
    tree = facts.tree(access.base_site)
    base = tree.expression(access.base_site)
    attribute = tree.parent(base) if base is not None else None
    return (tree.parent(attribute) if attribute is not None else None) or tree.module


def _is_length(use: ast.AST) -> bool:
    return isinstance(use, ast.Call) and isinstance(use.func, ast.Name) and use.func.id == "len"


def _is_set_epoch(use: ast.AST) -> bool:
    return isinstance(use, ast.Attribute) and use.attr == "set_epoch"
