"""DDP705: means over unequal shares are averaged."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import islice

from ddpify.ranks.model import Call
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.feeds import EQUAL_MEANS, UNEQUAL_AVERAGE, UNEQUAL_MEANS
from ddpify.rules.shared.feeds import by_rank, dataset_of, dealt_by
from ddpify.rules.shared.quotients import (
    Added,
    added,
    base,
    changed_between,
    collected,
    counts,
    divisions,
    loops_over,
    selects,
)
from ddpify.rules.shared.syntax import scope


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per mean that is averaged over ranks with different counts."""
    sums = [
        one
        for loop, loader in loops_over(run)
        for one in (*added(loop, loader), *collected(loop, loader))
    ]
    for call in run.named("torch.distributed.all_reduce", "torch.distributed.reduce"):
        for place, count in islice(_unequal(call, sums), 1):
            yield Finding(
                "DDP705",
                place.site,
                "a mean of this rank's share is averaged over the ranks: shares that are unequal"
                " get equal weight",
                Severity.WARNING,
                (),
                "all_reduce the sum and the count, and divide afterwards",
                ((count.loop.module.site(count.node), "each rank counts its own"),),
            )


def _unequal(call: Call, sums: list[Added]) -> Iterator[tuple[Call, Added]]:
    """The count by which the reduced value was divided, where it differs between ranks."""
    for place, value in _places(call):
        function = scope(place)
        for left, right, node in divisions(function):
            if node not in value:
                continue
            for one in sums:
                same = ast.unparse(base(right)) == one.name and one.loop not in call.loops
                here = any(n is one.node for n in ast.walk(function))
                if same and here and _differs(one):
                    reduced = (ast.unparse(base(left)), one.name)
                    if not any(changed_between(function, r, one.loop.node, node) for r in reduced):
                        yield place, one


def _places(call: Call) -> Iterator[tuple[Call, set[ast.AST]]]:
    """Where the reduced value was written: here, or by who gave it to this function."""
    first = call.node_of(0, "tensor")
    if first is None:
        return
    written = _written(call, first)
    yield call, written
    entered = call.stack[-1] if call.stack else None
    if entered is None or entered.target is None or entered.target is not call.function:
        return
    names = entered.target.parameters
    if any(isinstance(node, (ast.BinOp, ast.AugAssign)) for node in written):
        return  # it may be weighted
    used = {node.id for node in written if isinstance(node, ast.Name)}
    for number, name in enumerate(names[1:] if entered.receiver is not None else names):
        given = entered.node_of(number, name)
        if name in used and given is not None:
            yield entered, _written(entered, given)


def _written(call: Call, given: ast.expr) -> set[ast.AST]:
    """An argument's expression, and those that its name was last given."""
    found: set[ast.AST] = set(ast.walk(given))
    name = ast.unparse(given)
    for node in ast.walk(scope(call)):
        before = getattr(node, "lineno", 0) < call.node.lineno
        if before and isinstance(node, ast.Assign):
            if any(ast.unparse(target) == name for target in node.targets):
                found |= set(ast.walk(node.value))
        elif before and isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name:
            found.add(node)
    return found


def _differs(count: Added) -> bool:
    """Whether ranks count differently: by a condition on the data, or over unequal shares."""
    if selects(count.value):
        return True
    dataset = dataset_of(count.loader)
    dealt = bool(dealt_by(count.loader))
    return counts(count.value) and dataset is not None and by_rank(dataset) and not dealt


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
