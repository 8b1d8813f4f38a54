"""DDP415: the loss is reduced, or divided by the number of ranks, before its backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.ranks.wrapped import is_unsynced
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.averaged_again import averaged_again
from ddpify.rules.gradients.comm_hooks import averages, hooked
from ddpify.rules.gradients.divided_again import divided_again
from ddpify.rules.shared.averaged_by_hand import rescaled
from ddpify.rules.shared.by_ranks import power
from ddpify.rules.shared.wrapped import backwards, exclusive, forwards, innermost, live, wraps

_REDUCES = tuple(f"{words.DIST}{name}" for name in ("all_reduce", "reduce"))


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per reduction in place of a loss that goes backward afterwards, and per
    backward of a loss that was divided by the number of ranks."""
    found = dict(_reduced(run))
    yield from found.values()
    yield from (one for backward, one in _divided(run) if backward not in found)
    for site, wrap in divided_again(run):
        yield Finding(
            "DDP415",
            site,
            "DDP has averaged these gradients, and here they are divided by the number of ranks"
            " once more: they are 1/N of those of one process with all samples",
            Severity.WARNING,
            advice="leave the division out",
            because=((wrap.call.site, "wrapped here"),),
        )
    for again, wrap in averaged_again(run):
        yield Finding(
            "DDP415",
            again.call.site,
            "DDP has averaged these gradients in backward(): to reduce them again costs as much"
            " once more, and gives the same, or N times that where nothing divides",
            Severity.WARNING,
            advice="leave it out, or do not wrap the model",
            because=((wrap.call.site, "wrapped here"),),
        )


def _divided(run: Run) -> Iterator[tuple[RankCall, Finding]]:
    others = {wrap.wrapper for wrap, call in hooked(run) if not averages(call)}
    averaged = {
        call
        for wrap in wraps(run)
        for call in forwards(run, wrap)
        if not is_unsynced(call, wrap.wrapper)
        and wrap.wrapper not in others
        and not rescaled(run, wrap.covers)
    }
    for backward in backwards(run) if averaged else ():
        assert backward.receiver is not None
        made = _calls(set(backward.receiver.sources()))
        if averaged.isdisjoint(made) or power(backward.receiver) >= 0:
            continue
        if not any(_sends_gradients(call) for call in made):
            yield backward, Finding(
                "DDP415",
                backward.site,
                "the loss was divided by the number of ranks, and DDP averages over them once more:"
                " the gradient is 1/N of that of one process with all samples",
                Severity.WARNING,
                advice="go backward with the loss of this rank, and divide a copy for the log",
            )


def _sends_gradients(call: RankCall) -> bool:
    """Whether gradients come back through it from other ranks."""
    return call.name in words.FUNCTIONS or call.method == "apply"


def _reduced(run: Run) -> Iterator[tuple[RankCall, Finding]]:
    calls = {call for wrap in wraps(run) for call in forwards(run, wrap)}
    for reduce in run.named(*_REDUCES) if calls else ():
        loss = reduce.arg(0, "tensor")
        if loss is None or not reduce.grad or all(map(_is_number, loss.things)):
            continue
        if calls.isdisjoint(_calls(live(loss))):
            continue
        things = set(loss.things)
        for backward in backwards(run):
            assert backward.receiver is not None
            later = backward.order > reduce.order and innermost(backward) is innermost(reduce)
            if later and things & live(backward.receiver) and not exclusive(reduce, backward):
                yield backward, Finding(
                    "DDP415",
                    reduce.site,
                    "the loss is changed in place before its backward, behind autograd's back: its"
                    " value is that of all ranks, its gradient is not",
                    Severity.ERROR,
                    advice="reduce a copy for the log: loss.detach().clone()",
                    because=((backward.site, "the backward"),),
                )
                break


def _is_number(thing: RankThing) -> bool:
    """``torch.as_tensor([count], device=outputs.device)``, to which no gradient comes."""
    made = thing.call if thing.kind == "result" else None
    if made is None or made.name not in ("torch.tensor", "torch.as_tensor"):
        return False
    return made.method == "tensor" or any(one.items is not None for one in made.args[:1])


def _calls(things: set[RankThing]) -> set[RankCall]:
    return {thing.call for thing in things if thing.call is not None}


RULE = Rule(
    "DDP415",
    "reduced-training-loss",
    "all_reduce() writes into the loss without autograd knowing. DDP averages gradients anyway, so"
    " that nothing is won: what is divided afterwards (`loss / world_size`) makes the gradient too"
    " small, and torch warns that 'an autograd kernel was not registered' for c10d::allreduce_."
    " So does a division alone (measured: .772, and 1.544 without it). A mean over"
    " the ranks of gradients that DDP has averaged is what they were, for a second exchange.",
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
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y, reduction="none").sum()
                loss = loss / (len(x) * dist.get_world_size())
                loss.backward()  # DDP415
                optimizer.step()
            """),
    ),
    good=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                count = (y > 0).sum()
                dist.all_reduce(count)
                each = F.cross_entropy(model(x), y, reduction="none") * (y > 0)
                (each.sum() / (count / dist.get_world_size())).backward()
                optimizer.step()
            """),
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
    fixes=False,
)
