"""Conditions on a training batch that all ranks can ask of the whole batch instead.

if torch.isnan(loss).any(): break         # asked of `reduce_mean(loss)`, it is one for all ranks
if margin - fake.item() > 0: loss += margin - fake       # ranks have the same terms then
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts import roles
from ddpify.facts.events import Bind, Call
from ddpify.facts.locality import is_local
from ddpify.facts.model import Agreement, TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, OF_ONE_RANK, Kind, Measure
from ddpify.python import words
from ddpify.source import Site

_OPERATIONS = (ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp)


def own_tests(m: Machine) -> dict[Site, Site]:
    """The conditions on a rank's own samples, each with what it decides: whether ranks meet."""
    calls = roles.calls_of(m)
    found: dict[Site, Site] = {}
    for call in _meetings(calls, roles.training_loops(calls)):
        for guard in call.where.conditions():
            if is_local(m, guard.test):
                found.setdefault(guard.site, call.site)
    return found


def tests_of_terms(m: Machine) -> dict[Site, Site]:
    """The conditions on a rank's own samples that say of which terms a loss is."""
    calls = roles.calls_of(m)
    given = [(c.site, c.receiver) for c in roles.backwards(calls) if c.receiver is not None]
    losses = {site: loss for site, loss in given if loss.measure is Measure.MIXED}
    found: dict[Site, Site] = {}
    for bind in (e for e in m.events if isinstance(e, Bind) and e.value.dep(Kind.FORWARD)):
        outputs = set(bind.value.dep(Kind.FORWARD))
        ends = [site for site, loss in losses.items() if outputs & set(loss.dep(Kind.FORWARD))]
        for guard in bind.where.guards if ends else ():
            if is_local(m, guard.test):
                found.setdefault(guard.site, ends[0])
    return found


def agreements(m: Machine, tests: dict[Site, Site]) -> tuple[Agreement, ...]:
    """Those of ``tests`` that ask means over the batch; ``m`` reads all of them as agreed upon.

    What is set under a condition depends on it: else no mean would be one in the next round.
    """
    training = roles.training_loops(roles.calls_of(m))
    asked = {site: _asked(m, site, training) for site in tests}
    return tuple(Agreement(site, means, tests[site]) for site, means in asked.items() if means)


def _meetings(calls: tuple[Call, ...], training: tuple[TrainingLoop, ...]) -> Iterator[Call]:
    yield from (loop.backward for loop in training)
    yield from roles.steps(calls)
    yield from (call for call in calls if call.name == words.SAVE)


def _asked(m: Machine, site: Site, training: tuple[TrainingLoop, ...]) -> tuple[Site, ...]:
    """The means in the test of an ``if`` that every round of a training loop comes to."""
    tree = m.tree(site.path)
    node = tree.expression(site)
    above = tree.parent(node) if node is not None else None
    if node is None or not isinstance(above, ast.If) or above.test is not node:
        return ()
    return tuple(_of_parts(m, tree, node) or ()) if in_each_round(m, tree, above, training) else ()


def in_each_round(
    m: Machine, tree: Tree, node: ast.stmt, training: tuple[TrainingLoop, ...]
) -> bool:
    """Whether between it and the loop stand only conditions and rounds which ranks share."""
    loops = {loop.batch.site for loop in training}
    for above in tree.ancestors(node):
        if isinstance(above, (ast.For, ast.While)) and tree.site(above) in loops:
            return True
        if isinstance(above, (ast.If, ast.For)):
            asked = above.test if isinstance(above, ast.If) else above.iter
            value = m.values.get(tree.site(asked), NOTHING)
            if is_local(m, value) or value.dep(*OF_ONE_RANK):
                return False
        elif not isinstance(above, ast.With):
            return False
    return False


def _means(m: Machine, tree: Tree, node: ast.expr) -> list[Site] | None:
    """The outermost means over a rank's samples; None where something else is asked of them."""
    value = m.values.get(tree.site(node), NOTHING)
    mean = value.measure is Measure.MEAN and not value.of(Kind.BATCH)
    if value.dep(*OF_ONE_RANK) and not (mean and value.dep(Kind.FORWARD)):  # perhaps of its noise
        return None
    if not is_local(m, value):
        return []
    return [tree.site(node)] if mean else _of_parts(m, tree, node)


def _of_parts(m: Machine, tree: Tree, node: ast.expr) -> list[Site] | None:
    parts = _parts(m, tree, node)
    found = [_means(m, tree, part) for part in parts]
    sites = [site for each in found for site in each or ()]
    return sites if parts and None not in found else None


def _parts(m: Machine, tree: Tree, node: ast.expr) -> list[ast.expr]:
    """What an operation, or a function of a library, is given; the tensor whose method it is."""
    if isinstance(node, _OPERATIONS):
        return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    if isinstance(node, ast.Call):
        called = m.values.get(tree.site(node.func), NOTHING)
        if not any(isinstance(thing.ref, FunctionInfo) for thing in called.things):
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return [*owner, *node.args, *(keyword.value for keyword in node.keywords)]
    return []
