"""DDP209: a sampler fills up its shares with repeated samples, and a metric counts them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.ranks.model import ALL, Call, Loop, Thing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import CORRECT
from ddpify.rules.examples.feeds import PADDED, PADDED_MEAN, STRIDED
from ddpify.rules.shared.feeds import dealt_by, taken_over, trained
from ddpify.rules.shared.quotients import is_size, loops_over
from ddpify.rules.shared.syntax import scope

_REDUCTIONS = frozenset({"torch.distributed.all_reduce", "torch.distributed.reduce"})


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per padding sampler of a loader whose samples are counted."""
    learning = trained(run)
    training = {loop.node for call in run.backwards for loop in call.loops}
    done: set[Thing] = set()
    for loop, loader in loops_over(run):
        if loader in learning or loop.node in training or taken_over(run, loader):
            continue
        for sampler in dealt_by(loader):
            reduction = _reduced(run, loader)
            if sampler in done or reduction is None or not _pads(sampler) or not _counts(loop):
                continue
            done.add(sampler)
            yield _finding(sampler, loop, reduction)


def _finding(sampler: Thing, loop: Loop, reduction: Call) -> Finding:
    return Finding(
        "DDP209",
        sampler.site or loop.site,
        "the sampler repeats samples until all shares are equal, and the metric counts them twice",
        Severity.WARNING,
        (),
        "deal without filling up: Subset(dataset, range(rank, len(dataset), world_size)) and sums"
        " that are all-reduced; the model without its wrapper",
        ((loop.site, "samples are counted here"), (reduction.site, "and added over the ranks")),
    )


def _pads(sampler: Thing) -> bool:
    """Neither drop_last nor a look at whether the length divides."""
    call = sampler.call
    if call is None or sampler.cls is not None or call.ranks != ALL or call.star:
        return False
    drop = call.arg(5, "drop_last")
    if drop is not None and drop.constant is not False:
        return False
    return not any(_tests_length(scope(one)) for one in (call, *call.stack))


def _tests_length(function: ast.AST) -> bool:
    """``len(dataset) % world_size`` is written there."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, ast.Call)
        and ast.unparse(node.left.func) == "len"
        for node in ast.walk(function)
    )


def _reduced(run: Run, loader: Thing) -> Call | None:
    for call in run.calls:
        if call.name in _REDUCTIONS and any(loader in value.sources() for value in call.given):
            return call
    return None


def _counts(loop: Loop) -> bool:
    """Whether the loop adds up how many samples the batches have, or weighs by it."""
    sizes = {
        target.id
        for node in ast.walk(loop.node)
        if isinstance(node, ast.Assign) and is_size(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def size(node: ast.expr) -> bool:
        return is_size(node) or (isinstance(node, ast.Name) and node.id in sizes)

    return any(size(value) for node in ast.walk(loop.node) for value in _taken(node))


def _taken(node: ast.AST) -> Iterable[ast.expr]:
    """The expression that is added to something, or handed on: to a meter, a tuple, a tensor."""
    if isinstance(node, ast.AugAssign):
        yield node.value
        if isinstance(node.value, ast.BinOp):
            yield node.value.right
    elif isinstance(node, ast.Call):
        yield from (*node.args, *(keyword.value for keyword in node.keywords))
    elif isinstance(node, (ast.Tuple, ast.List)):
        yield from node.elts


RULE = Rule(
    "DDP209",
    "padded-evaluation",
    "DistributedSampler gives every rank equally many samples: it repeats the first ones when the"
    " length does not divide by the world size. 5 samples on two ranks are 6, and an accuracy of .8"
    " was reported as .667. Training does not mind; a metric that is published does.",
    "pytorch#25162, #22584; pytorch/examples PR#980; lightning#12862; BUGS D05",
    bad=(PADDED, PADDED_MEAN),
    good=(*CORRECT, STRIDED),
    lint=lint,
    severity=Severity.WARNING,
)
