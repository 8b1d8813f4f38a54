"""Means over a batch that training loops give to an object, which adds them up in a library's one.

tracker.update("loss", loss.item())          # in the loop: this rank's own mean
self.table.loc[key, "total"] += value        # where nothing follows it
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts import roles
from ddpify.facts.agreements import in_each_round
from ddpify.facts.events import Bind
from ddpify.facts.locality import is_local
from ddpify.facts.protocol import Machine
from ddpify.facts.values import NOTHING, Kind, Measure
from ddpify.source import Site


def kept(m: Machine) -> tuple[Site, ...]:
    """Where such means are given; none at all where an object is given something else, too."""
    training = roles.training_loops(roles.calls_of(m))
    found: dict[Site, None] = {}
    for bind in (e for e in m.events if isinstance(e, Bind)):
        if is_local(m, bind.value) and _is_of_an_object(m, bind):
            for site in _given(m, bind):
                value = m.values.get(site, NOTHING)
                tree = m.tree(site.path)
                node = tree.statement(site)
                if not is_local(m, value) or node is None:
                    continue
                mean = value.measure is Measure.MEAN and not value.of(Kind.BATCH)
                if not mean or not in_each_round(m, tree, node, training):
                    return ()
                found[site] = None
    return tuple(found)


def _is_of_an_object(m: Machine, bind: Bind) -> bool:
    """``self.table[key] = …``, of an object of the project."""
    node: ast.AST | None = m.tree(bind.site.path).expression(bind.site)
    if not isinstance(node, ast.Subscript):
        return False
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    owner = bind.where.frame.lookup(node.id) if isinstance(node, ast.Name) else None
    return owner is not None and bool(owner.of(Kind.INSTANCE))


def _given(m: Machine, bind: Bind) -> Iterator[Site]:
    """What callers gave for the parameters that are stored."""
    tree = m.tree(bind.site.path)
    statement = tree.statement(bind.site)
    for node in ast.walk(statement) if statement is not None else ():
        frame, asked = bind.where.frame, node
        site: Site | None = None
        while isinstance(asked, ast.Name) and frame.parameters.get(asked.id) is not None:
            site, caller = frame.parameters[asked.id], frame.caller
            given = m.tree(site.path).expression(site) if site is not None else None
            if caller is None or given is None:
                break
            frame, asked = caller, given
        if site is not None:
            yield site
