"""DDP821: what a collective returns is used, and it returns None."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples_ranks import on_ranks
from ddpify.rules.syntax import is_used

_NONE: Final = frozenset(
    f"{words.DIST}{name}"
    for name in "all_reduce broadcast reduce all_gather gather scatter barrier all_gather_object"
    " gather_object broadcast_object_list scatter_object_list reduce_scatter all_to_all"
    " all_to_all_single all_gather_into_tensor reduce_scatter_tensor".split()
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per use of the None that a synchronous collective gives."""
    for call in run.calls:
        if call.name not in _NONE or call.alone or call.star:
            continue
        waits = call.kwargs.get("async_op")
        if (waits is None or waits.constant is False) and is_used(call):
            yield Finding(
                "DDP821",
                call.site,
                f"{call.method}() returns None: it changes its argument in place",
                Severity.ERROR,
                advice="call it as a statement of its own and use the argument afterwards",
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
)
