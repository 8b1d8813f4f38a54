"""DDP821: what a collective returns is used, and it returns None."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.collectives.never_put_back import never_put_back
from ddpify.rules.collectives.unread import unread
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.uses import uses
from ddpify.rules.shared.written import is_literal_keyword
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per use of the None that a synchronous collective gives."""
    for call in run.calls:
        shared = collective(call)
        if shared is None or call.method in words.SESSION_OPS or call.alone or call.star:
            continue
        if shared.node("async_op") is not None and not is_literal_keyword(call, "async_op"):
            continue  # a wrapper, which uses it where it is asked to
        if shared.gives_none and uses(call):
            yield Finding(
                "DDP821",
                call.site,
                f"{call.method}() returns None: it changes its argument in place",
                Severity.ERROR,
                advice="call it as a statement of its own and use the argument afterwards",
            )
    seen: set[Site] = set()
    for call, step in never_put_back(run):
        if call.site not in seen:
            seen.add(call.site)
            yield Finding(
                "DDP821",
                call.site,
                "the gradients are reduced in a copy that is never put back: each rank steps with"
                " its own, and the ranks drift apart",
                Severity.ERROR,
                advice="copy the parts back into each p.grad before the step",
                because=((step.site, "the step"),),
            )
    for call in unread(run):
        if call.site not in seen:
            seen.add(call.site)
            yield Finding(
                "DDP821",
                call.site,
                f"nothing reads what {call.method}() gives: each rank goes on with its own",
                Severity.WARNING,
                advice="go on with the result: copy it back, or compute from it behind the call",
            )


RULE = Rule(
    "DDP821",
    "in-place-result-used",
    "The collectives of torch.distributed change their argument and return None (a handle with"
    " async_op=True), so what is computed from the result fails or is None. The functional ones"
    " (torch.distributed._functional_collectives, torch.distributed.nn) do return tensors.",
    "torch.distributed documentation; measured for all of them; BUGS L09",
    lint=lint,
    bad=(
        on_ranks("""
            total = dist.all_reduce(value)  # DDP821
            print(rank, total / world)
            """),
        on_ranks("print(rank, dist.all_reduce(value).item())  # DDP821"),
        on_ranks(
            "print(rank, summed(value).item())",
            """

            def summed(tensor):
                return dist.all_reduce(tensor)  # DDP821
            """,
        ),
    ),
    good=(
        on_ranks("""
            dist.all_reduce(value)
            print(rank, value / world)
            """),
        on_ranks("""
            work = dist.all_reduce(value, async_op=True)
            work.wait()
            """),
        on_ranks(
            "synchronize()",
            """

            def synchronize():
                return dist.barrier()
            """,
        ),
    ),
    fixes=False,
)
