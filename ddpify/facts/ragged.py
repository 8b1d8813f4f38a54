"""Whether the last batch of a pass may have fewer samples, where no loader makes the batches."""

from __future__ import annotations

import ast

from ddpify.facts import roles, torchtext
from ddpify.facts.bodies import CutBody, flows
from ddpify.facts.model import TrainingLoop
from ddpify.facts.places import TURNS
from ddpify.facts.protocol import Machine
from ddpify.facts.values import NOTHING


def may_end_short(
    m: Machine, loop: TrainingLoop, split: CutBody, names: tuple[str, ...], axis: int
) -> bool:
    """Whether the passes of a loop go through what there is, and nothing says it comes out even.

    Not where each batch is drawn: ``for step in range(steps): x, y = get_batch()``; and what is
    sliced along another axis than that of the samples has all of them.
    """
    node = m.tree(loop.batch.site.path).statement(loop.batch.site)
    if not isinstance(node, ast.For):
        return isinstance(node, ast.While) and not isinstance(node.test, ast.Constant)
    found = {name.partition(".")[0] for name in names}
    if axis and not found & split.targets and not _turns(m, loop, split):
        return False
    grown = -1
    while grown != len(found):
        grown = len(found)
        for targets, sources in flows(split.made_by, ()):
            found |= sources if targets & found else set()
    return bool(found & split.targets) and not _comes_out_even(m, loop, node)


def _turns(m: Machine, loop: TrainingLoop, split: CutBody) -> bool:
    """Whether a pass puts the samples that it slices along another axis: `torch.stack(rows, 1)`."""
    tree = m.tree(loop.batch.site.path)
    nodes = [node for statement in split.made_by for node in ast.walk(statement)]
    sites = {tree.site(node) for node in nodes if isinstance(node, ast.Call)}
    called = [c.target.node for c in roles.calls_of(m) if c.target and c.site in sites]
    nodes += [node for each in called for node in ast.walk(each)]
    return any(isinstance(n, ast.Attribute) and n.attr in TURNS | {"stack"} for n in nodes)


def _comes_out_even(m: Machine, loop: TrainingLoop, node: ast.For) -> bool:
    """``for start in range(0, 960, 32)``, columns of one text."""
    if torchtext.keeps_size(loop.batch.over):
        return True
    tree = m.tree(loop.batch.site.path)
    given = node.iter.args if isinstance(node.iter, ast.Call) else []
    numbers = [m.values.get(tree.site(one), NOTHING).const for one in given]
    if len(numbers) != 3 or not all(isinstance(one, int) for one in numbers):
        return False
    start, stop, step = (one for one in numbers if isinstance(one, int))
    return bool(step) and not (stop - start) % step
