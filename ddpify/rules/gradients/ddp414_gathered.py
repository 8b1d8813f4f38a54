"""DDP414: a loss over gathered tensors, which carry no gradient."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.gathers import FILLING, arguments, made_to_fill
from ddpify.rules.shared.wrapped import backwards, forwards, live, wraps


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per gather of outputs whose result is trained on as it is."""
    calls = {call for wrap in wraps(run) for call in forwards(run, wrap)}
    for gather in run.named(*FILLING) if calls else ():
        into, given = arguments(gather)
        if into is None or given is None or not gather.grad or _in_function(gather):
            continue
        outputs = {thing for thing in live(given) if thing.call in calls}
        made = made_to_fill(into) if outputs else set()
        trained_on = made and _is_trained_on(run, gather, made, outputs)
        if trained_on and not _put_back(run, gather, made):
            yield Finding(
                "DDP414",
                gather.site,
                f"what {gather.method}() fills in has no gradient: this part of the loss does not"
                " train the model",
                Severity.ERROR,
                advice="put this rank's own tensor back into the list, or gather with an"
                " autograd function",
            )


def _in_function(gather: RankCall) -> bool:
    """Whether a call is part of an autograd function, which has its own backward."""
    owners = [gather.function, *(call.target for call in gather.stack)]
    return any(
        owner is not None
        and owner.owner is not None
        and owner.owner.inherits("torch.autograd.Function")
        for owner in owners
    )


def _is_trained_on(
    run: Run, gather: RankCall, made: set[RankThing], outputs: set[RankThing]
) -> bool:
    for backward in backwards(run):
        if backward.receiver is not None and backward.order > gather.order:
            sources = live(backward.receiver)
            if made & (sources - _kept(sources, made, outputs)):
                return True
    return False


def _kept(sources: set[RankThing], made: set[RankThing], outputs: set[RankThing]) -> set[RankThing]:
    """What code that is not followed gets beside this rank's outputs: a memory may only keep it."""
    found: set[RankThing] = set()
    for call in (t.call for t in sources if t.call is not None and _is_unread(t.call)):
        given = [set(value.sources()) for value in call.given]
        if any(outputs & one and not made & one for one in given):
            found = found.union(*(one for one in given if made & one))
    return found


def _is_unread(call: RankCall) -> bool:
    named = call.name != "?" and (call.method != "__call__" or call.name.startswith("torch."))
    return call.target is None and not named


def _put_back(run: Run, gather: RankCall, made: set[RankThing]) -> bool:
    """Whether an element is set after the gather, or the list is taken apart."""
    for store in run.stores:
        if store.element and store.order > gather.order and made & set(store.base.sources()):
            return True
    return any(
        call.order > gather.order
        and call.method in ("pop", "insert", "remove")
        and call.receiver is not None
        and made & set(call.receiver.sources())
        for call in run.calls
    )


RULE = Rule(
    "DDP414",
    "gather-without-gradient",
    "torch.distributed.all_gather() copies numbers into tensors that know of no graph (measured:"
    " requires_grad is False). A contrastive loss over gathered embeddings then trains only what"
    " was not gathered: one side, or a temperature. Where nothing is left, backward() raises 'does"
    " not require grad'.",
    "fromage#33, vissl#123, open_clip#616; BUGS G15",
    lint=lint,
    bad=(
        trained(loop="""
            for x, y in loader:
                out = model(x)
                parts = [torch.zeros_like(out) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, out)  # DDP414
                optimizer.zero_grad()
                torch.cat(parts).pow(2).mean().backward()
                optimizer.step()
            """),
    ),
    good=(
        trained(loop="""
            for x, y in loader:
                out = model(x)
                parts = [torch.zeros_like(out) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, out)
                parts[dist.get_rank()] = out
                optimizer.zero_grad()
                torch.cat(parts).pow(2).mean().backward()
                optimizer.step()
            """),
    ),
    fixes=False,
)
