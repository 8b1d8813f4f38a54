"""What the loss of a training loop is computed from, by the names in its body."""

from __future__ import annotations

import ast

from ddpify.facts import roles
from ddpify.facts.bodies import Block, assigned, flows, loaded
from ddpify.facts.effects import effect_of
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine


def loss_names(m: Machine, training: TrainingLoop, rest: Block) -> set[str]:
    """The names that it is computed from in these statements."""
    tree = m.tree(training.batch.site.path)
    calls = roles.calls_of(m)
    shown = [c.site for c in calls if effect_of(c) and c.site.path == tree.source.path]
    silent = {n for site in shown if (n := tree.expression(site)) is not None}
    call = tree.expression(training.backward.site)
    found = set(loaded(call)) if call is not None else set()
    grown = -1
    while grown != len(found):
        grown = len(found)
        for targets, sources in flows(rest, silent):
            if targets & found:
                found |= sources
    return found


def loss_values(m: Machine, training: TrainingLoop, rest: Block) -> list[ast.expr] | None:
    """The expressions that make it; None where the project's functions do."""
    tree = m.tree(training.batch.site.path)
    names = loss_names(m, training, rest)
    found = [value for bound, value in assigned(rest) if bound & names]
    own = {c.site for c in roles.calls_of(m) if c.target is not None}
    calls = (n for each in found for n in ast.walk(each) if isinstance(n, ast.Call))
    return None if any(tree.site(one) in own for one in calls) else found
