"""DDP824: an asynchronous collective that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.inflight import BATCH, SENDS, flown, spelled
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.collectives.last_handle import LastHandle, last_handle
from ddpify.rules.collectives.overtaken import overtaken, replaced
from ddpify.rules.collectives.pending import on_gloo, touched
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.uses import uses
from ddpify.rules.shared.written import is_literal_keyword
from ddpify.site import Site

_COALESCING: Final = f"{words.DIST}_coalescing_manager"  # it hands out the handle

_TAKEN_BACK: Final = (
    "nobody keeps this handle: a message that the other rank has not yet come to receive is never"
    " sent, a hang there"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per asynchronous call that nobody waits for, or not soon enough."""
    for call in run.calls:
        if _only_begun(call) and (call.alone or uses(call) == ()):
            yield _finding(call, "nobody waits for this barrier: no rank is held up by it")
            continue
        if not flown(call) or call.method == "barrier" or call.within(_COALESCING):
            continue
        sends = spelled(call) in SENDS
        if call.name == f"{words.DIST}isend" and call.alone and on_gloo(run):
            yield _finding(call, _TAKEN_BACK)
            continue
        dropped = not sends and call.name != BATCH and (call.alone or uses(call) == ())
        if dropped and not _is_waited_for(run, call):
            yield _finding(call)
            continue
        last = last_handle(run, call)
        if last is not None:
            yield _of_last(last)
            continue
        if collective(call) is not None and not is_literal_keyword(call, "async_op"):
            continue  # a wrapper, which may ask for it before it goes on
        for at, fills in touched(run, call):
            yield _too_early(run, call, at, not fills)
    yield from _of_hooks(run)


def _of_hooks(run: Run) -> Iterator[Finding]:
    """What a hook of each parameter begins in backward."""
    for site in replaced(run) if on_gloo(run) else ():
        yield _of_last(LastHandle(site, True))
    for step, site in overtaken(run):
        yield Finding(
            "DDP824",
            step.site,
            "nothing waits between backward() and this step for the reductions that the hook has"
            " begun: each rank steps with gradients that are its own, in part or all",
            Severity.ERROR,
            advice="wait for all of them before step()",
            because=((site, "begun here, for each parameter"),),
        )


def _only_begun(call: RankCall) -> bool:
    """Whether it is a barrier that returns at once."""
    shared = collective(call)
    begun = shared is not None and call.method == "barrier" and shared.waits is False
    return begun or call.method == "Ibarrier"


def _is_waited_for(run: Run, call: RankCall) -> bool:
    """Whether a function that leads here waits for all that the GPU does, later or each round."""
    way = {one.function for one in call.way}
    return any(
        one.function in way and (one.order > call.order or set(one.loops) & set(call.loops))
        for one in run.named("torch.cuda.synchronize")
    )


def _of_last(one: LastHandle) -> Finding:
    what = "the last round's handle alone is waited for, not those before it"
    return Finding(
        "DDP824",
        one.site,
        what if one.sure else f"{what}: where gloo is chosen, they may not be done",
        Severity.ERROR if one.sure else Severity.WARNING,
        advice="keep all handles, and wait for each of them",
        because=one.because,
    )


def _too_early(run: Run, call: RankCall, at: Site, sends: bool) -> Finding:
    where = _beside(run, call, at)
    what = (
        "this is changed before the wait: what arrives is the old value, the new or a part of both"
    )
    if not sends:
        what = "this is used before the wait: it holds the old value, the new or a part of both"
    return Finding(
        "DDP824",
        where,
        what,
        Severity.ERROR,
        advice="call wait() first, or use another tensor",
        because=(
            (call.site, "sent here" if sends else "begun here"),
            *(((at, "changed here" if sends else "used here"),) if at != where else ()),
        ),
    )


def _beside(run: Run, call: RankCall, at: Site) -> Site:
    """The call that leads there from the function that has the handle, where one does: who reads
    only the helper, ``fill(buffer)``, finds nothing wrong in it."""
    if call.function is None or at.within(call.function.site):
        return at
    leads = (
        one.site
        for one in run.calls
        if one.function is call.function and one.target and at.within(one.target.site)
    )
    return next(leads, at)


def _finding(
    call: RankCall,
    what: str = "nobody waits for this: what is read afterwards may be the old value",
) -> Finding:
    return Finding(
        "DDP824",
        call.site,
        what,
        Severity.ERROR,
        (
            (Edit(How.ARGUMENT, call.site, "", "async_op"),)
            if call.alone and "async_op" in call.kwargs
            else ()
        ),
        "keep the handle, and call its wait() before the tensor is used",
    )


RULE = Rule(
    "DDP824",
    "async-not-awaited",
    "With async_op=True the call returns at once, with a handle. Until its wait() has returned"
    " the tensor may hold the old value, the sum or a part of it (measured: 1.0 before, 3.0 after"
    " the wait). What isend() sends is read while it is sent: after block.mul_(-1) before the wait"
    " the other rank got -1 in place of 1. Two irecv() into one tensor leave what came last: 5000"
    " was read as the first message, which was 1000 (measured with gloo). Gloo gives up a message"
    " whose handle is gone: of ten numbers, or four million, whose isend() kept no handle, a rank"
    " that came a second later received none (measured, a timeout), and all where the handle was"
    " kept. A barrier that is begun holds nobody up.",
    "torch.distributed documentation, synchronous and asynchronous collectives; BUGS L12",
    lint=lint,
    bad=(
        on_ranks("""
            dist.irecv(value, src=1 - rank)  # DDP824
            dist.send(value * 2, dst=1 - rank)
            print(rank, value)
            """),
        on_ranks("""
            dist.all_reduce(value, async_op=True)  # DDP824
            print(rank, value / world)
            """),
        on_ranks("""
            work = dist.all_reduce(value, async_op=True)  # DDP824
            print(rank, value / world)
            """),
        on_ranks("""
            work = dist.all_reduce(value, async_op=True)
            print(rank, value / world)  # DDP824
            work.wait()
            """),
        on_ranks("""
            works = [dist.isend(value * 2, dst=1 - rank)]
            sending = dist.isend(value, dst=1 - rank)
            value.zero_()  # DDP824
            sending.wait()
            works[0].wait()
            dist.recv(value, src=1 - rank)
            dist.recv(value, src=1 - rank)
            """),
        on_ranks("""
            works = [dist.isend(value, dst=1 - rank), dist.isend(value, dst=1 - rank)]
            other = torch.zeros_like(value)
            first = dist.irecv(other, src=1 - rank)
            second = dist.irecv(other, src=1 - rank)  # DDP824
            for work in (*works, first, second):
                work.wait()
            """),
        on_ranks("""
            [dist.broadcast(one, src=0, async_op=True) for one in (value, value * 2)]  # DDP824
            print(rank, value / world)
            """),
        on_ranks(
            "begin(value)",
            """

            def begin(tensor):
                return dist.all_reduce(tensor, async_op=True)  # DDP824
            """,
        ),
    ),
    good=(
        on_ranks("""
            work = dist.all_reduce(value, async_op=True)
            work.wait()
            print(rank, value / world)
            """),
        on_ranks("""
            handles = [dist.all_reduce(value, async_op=True)]
            for handle in handles:
                handle.wait()
            """),
        on_ranks("""
            total = value.clone()
            work = dist.all_reduce(total, async_op=True)
            other = torch.zeros(total.shape) + value
            work.wait()
            print(rank, total / world, other)
            """),
        on_ranks("""
            sending = dist.isend(value, dst=1 - rank)
            mean = value.mean()
            other = torch.zeros_like(value)
            dist.recv(other, src=1 - rank)
            sending.wait()
            value.copy_(other + mean)
            """),
        on_ranks("dist.all_reduce(value, async_op=True).wait()"),
        on_ranks(
            "begin(value).wait()",
            """

            def begin(tensor):
                return dist.all_reduce(tensor, async_op=True)
            """,
        ),
    ),
)
