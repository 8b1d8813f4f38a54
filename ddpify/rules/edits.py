"""Shorthand for the edits rules make, with the runtime helpers their code needs."""

from __future__ import annotations

import ast
import re

from ddpify.facts.events import Call
from ddpify.facts.locality import is_shared_out
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.names import RUNTIME_NAMES, module_of
from ddpify.rules.base import Edit, How, Import
from ddpify.source import Site

MAIN = "is_main_process()"


def helpers(facts: Facts, code: str) -> tuple[Import, ...]:
    """The runtime helpers that ``code`` names."""
    words = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", code))  # no attribute is a helper
    core = facts.runtime[0]
    return tuple(Import(module_of(core, name), name) for name in sorted(words & RUNTIME_NAMES))


def edit(facts: Facts, how: How, site: Site, code: str, name: str = "") -> Edit:
    """An edit whose helpers are imported where it is made."""
    return Edit(how, site, code, name, helpers(facts, code))


def statement_of(facts: Facts, site: Site) -> Site:
    """The statement a site is in."""
    tree = facts.tree(site)
    node = tree.statement(site)
    return tree.site(node) if node is not None else site


def is_whole_test(facts: Facts, site: Site) -> bool:
    """Whether an expression is all that an `if` or `while` asks."""
    tree = facts.tree(site)
    node = tree.statement(site)
    return isinstance(node, (ast.If, ast.While)) and tree.site(node.test) == site


def gate(facts: Facts, statement: Site) -> Edit:
    """Run a statement on the main process only."""
    return edit(facts, How.GATE, statement, MAIN)


def proof(things: tuple[Thing, ...]) -> tuple[tuple[Site, str], ...]:
    """The hops that carried a value, for the finding's `because`."""
    for thing in things[:1]:
        return ((thing.born, "made"), *thing.hops)
    return ()


def fresh(facts: Facts, site: Site, wanted: str) -> str:
    """``wanted``, or the first numbered form of it that the enclosing scope does not use."""
    tree = facts.tree(site)
    used = tree.taken(tree.statement(site) or tree.module)
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}{number}", number + 1
    return name


def is_local(facts: Facts, value: Value) -> bool:
    """Whether a value comes from this rank's share of the samples only."""
    if value.measure is Measure.UNIFORM:
        return False
    return any(
        is_shared_out(facts, thing)
        for batch in value.dep(Kind.BATCH)
        if batch.inner is not None
        for thing in batch.inner.things
    )


def once(calls: tuple[Call, ...]) -> dict[Site, list[Call]]:
    """Calls by place: one statement, however many contexts reach it."""
    found: dict[Site, list[Call]] = {}
    for call in calls:
        found.setdefault(call.site, []).append(call)
    return found
