"""DDP415: the loss is reduced before its backward."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.wrapped import backwards, exclusive, forwards, innermost, live, wraps

_REDUCES = tuple(f"{words.DIST}{name}" for name in ("all_reduce", "reduce"))


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per reduction in place of a loss that goes backward afterwards."""
    calls = {call for wrap in wraps(run) for call in forwards(run, wrap)}
    for reduce in run.named(*_REDUCES) if calls else ():
        loss = reduce.arg(0, "tensor")
        if loss is None or not reduce.grad or calls.isdisjoint(_calls(live(loss))):
            continue
        things = set(loss.things)
        for backward in backwards(run):
            assert backward.receiver is not None
            later = backward.order > reduce.order and innermost(backward) is innermost(reduce)
            if later and things & live(backward.receiver) and not exclusive(reduce, backward):
                yield Finding(
                    "DDP415",
                    reduce.site,
                    "the loss is changed in place before its backward, behind autograd's back: its"
                    " value is that of all ranks, its gradient is not",
                    Severity.ERROR,
                    advice="reduce a copy for the log: loss.detach().clone()",
                    because=((backward.site, "the backward"),),
                )
                break


def _calls(things: set[RankThing]) -> set[object]:
    return {thing.call for thing in things}


RULE = Rule(
    "DDP415",
    "reduced-training-loss",
    "all_reduce() writes into the loss without autograd knowing. DDP averages gradients anyway, so"
    " that nothing is won: what is divided afterwards (`loss / world_size`) makes the gradient too"
    " small, and torch warns that 'an autograd kernel was not registered' for c10d::allreduce_.",
    "apex#664; BUGS G16",
    lint=lint,
    bad=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                dist.all_reduce(loss)  # DDP415
                loss = loss / dist.get_world_size()
                loss.backward()
                optimizer.step()
            """),
    ),
    good=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                shown = loss.detach().clone()
                dist.all_reduce(shown)
                loss.backward()
                optimizer.step()
            """),
    ),
)
