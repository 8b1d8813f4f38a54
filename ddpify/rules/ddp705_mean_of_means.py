"""DDP705: means over unequal shares are averaged."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.model import Call, Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples_feeds import EQUAL_MEANS, UNEQUAL_AVERAGE, UNEQUAL_MEANS
from ddpify.rules.feeds import by_rank, dataset_of, dealt_by, enclosing
from ddpify.rules.quotients import (
    Added,
    added,
    base,
    changed_between,
    counts,
    divisions,
    loops_over,
    selects,
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per mean that is averaged over ranks with different counts."""
    sums = [one for loop, loader in loops_over(run) for one in added(loop, loader)]
    for call in run.named("torch.distributed.all_reduce", "torch.distributed.reduce"):
        count = next(_unequal(call, sums), None)
        if count is not None:
            yield Finding(
                "DDP705",
                call.site,
                "a mean of this rank's share is averaged over the ranks: shares that are unequal"
                " get equal weight",
                Severity.WARNING,
                (),
                "all_reduce the sum and the count, and divide afterwards",
                ((count.loop.module.site(count.node), "each rank counts its own"),),
            )


def _unequal(call: Call, sums: list[Added]) -> Iterator[Added]:
    """The count by which the reduced value was divided, where it differs between ranks."""
    function = enclosing(call)
    value = _written(call, function)
    for left, right, node in divisions(function):
        if value is None or node not in value:
            continue
        for one in sums:
            same = ast.unparse(base(right)) == one.name and one.loop not in call.loops
            here = any(n is one.node for n in ast.walk(function))
            if same and here and _differs(one):
                reduced = (ast.unparse(base(left)), one.name)
                if not any(changed_between(function, r, one.loop.node, node) for r in reduced):
                    yield one


def _written(call: Call, function: ast.AST) -> set[ast.AST] | None:
    """The expressions that the reduced name was last given."""
    given = call.node_of(0, "tensor")
    if given is None:
        return None
    found: set[ast.AST] = set(ast.walk(given))
    name = ast.unparse(given)
    for node in ast.walk(function):
        before = getattr(node, "lineno", 0) < call.node.lineno
        if before and isinstance(node, ast.Assign):
            if any(ast.unparse(target) == name for target in node.targets):
                found |= set(ast.walk(node.value))
        elif before and isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name:
            found.add(node)
    return found


def _differs(count: Added) -> bool:
    """Whether ranks count differently: by a condition on the data, or over unequal shares."""
    if selects(count.node.value):
        return True
    dataset = dataset_of(count.loader)
    dealt = bool(dealt_by(count.loader))
    return counts(count.node.value) and dataset is not None and by_rank(dataset) and not dealt


RULE = Rule(
    "DDP705",
    "mean-of-means",
    "The mean of the ranks' means is the mean of all samples only where all ranks count equally"
    " many. With shares of different length, or a count of tokens that are not padding, it is"
    " another number: .375 where .6 was right. A DistributedSampler's shares are equal.",
    "torch.distributed.all_reduce; BUGS M02",
    bad=(UNEQUAL_MEANS, UNEQUAL_AVERAGE),
    good=(EQUAL_MEANS,),
    lint=lint,
    severity=Severity.WARNING,
)
