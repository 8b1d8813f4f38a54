"""DDP412: a second backward through forwards that a first one already synchronised."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.cleared import is_averaged, is_cleared
from ddpify.rules.shared.wrapped import (
    backwards,
    exclusive,
    forwards,
    innermost,
    reached,
    wraps,
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per backward that no forward came right before."""
    for wrap in wraps(run):
        calls = forwards(run, wrap)
        ended = [(b, reached(b, calls)) for b in backwards(run)] if calls else []
        ended = [(b, through) for b, through in ended if through]
        for (first, before), (second, through) in pairwise(ended):
            if _apart(first, second) or _between(calls, first, second):
                continue
            again = through if _keeps(first) else [f for f in through if f not in before]
            if not again or max(f.order for f in again) > first.order:
                continue
            if not (is_averaged(run, second, wrap) or is_cleared(run, second, wrap)):
                yield _finding(first, second)


def _keeps(backward: RankCall) -> bool:
    """Whether another backward can go the same way: else what looks so was cut off on the way."""
    given = backward.arg(1, "retain_graph")
    return given is not None and given.atoms != (None, None) and given.constant is not False


def _between(calls: list[RankCall], first: RankCall, second: RankCall) -> bool:
    """Whether a forward ran between two backwards."""
    return any(first.order < call.order < second.order for call in calls)


def _apart(first: RankCall, second: RankCall) -> bool:
    """Whether the two are not made one after the other in one round."""
    same = innermost(first) is innermost(second) and first.loops == second.loops
    return not same or first.node is second.node or exclusive(first, second)


def _finding(first: RankCall, second: RankCall) -> Finding:
    return Finding(
        "DDP412",
        second.site,
        "no forward of the wrapped model ran since the last backward: DDP does not average what"
        " this one adds, and the ranks drift apart",
        Severity.ERROR,
        advice="add the losses up and go backward once, or forward and backward by turns",
        because=((first.site, "the backward that was averaged"),),
    )


RULE = Rule(
    "DDP412",
    "two-backwards",
    "DistributedDataParallel averages in the backward that follows a forward. Two forwards and then"
    " two backwards, or one forward and two backwards, leave the second loss unaveraged: measured"
    " 2.5 and 3.5 instead of 3.0 on both, with no error. The sum of the losses is fine, and so are"
    " forward, backward, forward, backward.",
    "DistributedDataParallel docstring; pytorch#109191; BUGS G13",
    lint=lint,
    words=("average_gradients(",),
    bad=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                clean = F.cross_entropy(model(x), y)
                noisy = F.cross_entropy(model(x + 0.1), y)
                clean.backward()
                noisy.backward()  # DDP412
                optimizer.step()
            """),
    ),
    good=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                clean = F.cross_entropy(model(x), y)
                clean.backward()
                noisy = F.cross_entropy(model(x + 0.1), y)
                noisy.backward()
                optimizer.step()
            """),
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                clean = F.cross_entropy(model(x), y)
                noisy = F.cross_entropy(model(x + 0.1), y)
                (clean + noisy).backward()
                optimizer.step()
            """),
    ),
    fixes=False,
)
