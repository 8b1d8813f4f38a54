"""DDP807: a process group that only some ranks make."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule
from ddpify.rules.collectives.divergence import GROUP, findings
from ddpify.rules.examples.ranks import on_ranks


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per condition on the rank around the making of a group."""
    return findings(run, GROUP)


RULE = Rule(
    GROUP,
    "group-made-on-some-ranks",
    "new_group() has to be called by all ranks in the same order, those that will not be members"
    " included: groups are named by a counter, and the members meet at the store. Made by some"
    " ranks only, it ends with DistStoreError after the time limit (measured), or names the next"
    " group differently. `use_local_synchronization=True` lets the members alone make it; further"
    " groups of this kind meet only where all of their ranks know as many groups (measured).",
    "torch.distributed.new_group documentation; pytorch#130102; llm-compressor#2869; BUGS C15",
    lint=lint,
    bad=(
        on_ranks("""
            if rank == 0:
                group = dist.new_group([0, 1])  # DDP807
                dist.all_reduce(value, group=group)
            dist.barrier()
            """),
        on_ranks(
            """
            group = paired(rank)
            dist.all_reduce(value, group=group)
            dist.barrier()
            """,
            """

            def paired(rank):
                return dist.new_group([0, 1]) if rank == 0 else None  # DDP807
            """,
        ),
    ),
    good=(
        on_ranks("""
            group = dist.new_group([0])
            if rank == 0:
                dist.all_reduce(value, group=group)
            dist.barrier()
            """),
        on_ranks("""
            if rank == 0:
                group = dist.new_group([0], use_local_synchronization=True)
                dist.all_reduce(value, group=group)
            dist.barrier()
            """),
    ),
)
