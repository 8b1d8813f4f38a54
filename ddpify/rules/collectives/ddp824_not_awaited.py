"""DDP824: an asynchronous collective that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.uses import uses

_RECEIVE = f"{words.DIST}irecv"


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per handle of an asynchronous collective that is dropped."""
    if any(run.named("torch.cuda.synchronize")):
        return
    for call in run.calls:
        if call.name == _RECEIVE and (call.alone or uses(call) == ()):
            yield _finding(call)
        shared = collective(call)
        if shared is None or shared.waits is not False or call.method == "barrier":
            continue
        if call.alone or uses(call) == ():
            yield _finding(call)


def _finding(call: RankCall) -> Finding:
    return Finding(
        "DDP824",
        call.site,
        "nobody waits for this: what is read afterwards may be the old value",
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
    "With async_op=True the call returns at once, with a handle. Until its wait() has returned the"
    " tensor may hold the old value, the sum or a part of it (measured: 1.0 before, 3.0 after the"
    " wait).",
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
