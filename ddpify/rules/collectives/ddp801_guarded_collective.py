"""DDP801: a collective that only some ranks enter."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule
from ddpify.rules.collectives.divergence import GUARDED, findings
from ddpify.rules.examples.ranks import on_ranks


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per condition on the rank around a collective that the others do not meet."""
    return findings(run, GUARDED)


RULE = Rule(
    GUARDED,
    "collective-on-some-ranks",
    "Collectives are paired by their order, not by their place in the program: the n-th of one rank"
    " meets the n-th of the other. One that only rank 0 enters meets whatever the others enter"
    " next. If that is the same operation, the numbers are wrong and nothing is reported (measured:"
    " 110 instead of 21); if not, the job hangs until the time limit or a peer's connection breaks."
    " Both paths are compared: a pair of barriers that lets rank 0 go first is fine, and so is the"
    " same call in both branches.",
    "accelerate#2785, #2690; bergson#376; TORCH_DISTRIBUTED_DEBUG=DETAIL does not see equal"
    " operations; BUGS C01, C02, C09",
    lint=lint,
    words=("torchmetrics.",),
    bad=(
        on_ranks("""
            if rank == 0:
                dist.all_reduce(value)  # DDP801
                print(value.item())
            dist.barrier()
            """),
        on_ranks("""
            if rank == 0:
                torch.save(value, "value.pt")
            else:
                dist.barrier()  # DDP801
            dist.all_reduce(value)
            """),
        on_ranks(
            """
            if rank == 0:
                print(f"mean {mean(value)}")  # DDP801
            dist.barrier()
            """,
            """

            def mean(value):
                dist.all_reduce(value)
                return value.item() / dist.get_world_size()
            """,
        ),
    ),
    good=(
        on_ranks("""
            dist.all_reduce(value)
            if rank == 0:
                print(value.item())
            """),
        on_ranks("""
            if rank != 0:
                dist.barrier()
            if rank == 0:
                torch.save(value, "value.pt")
                dist.barrier()
            """),
        on_ranks("""
            if rank == 0:
                value.fill_(7)
                dist.broadcast(value, src=0)
            else:
                dist.broadcast(value, src=0)
            """),
        on_ranks("""
            alone = dist.new_group([0])
            if rank == 0:
                dist.all_reduce(value, group=alone)
            """),
    ),
)
