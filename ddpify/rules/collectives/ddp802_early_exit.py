"""DDP802: some ranks return, break or exit before a collective that the others enter."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule
from ddpify.rules.collectives.divergence import LEFT, findings
from ddpify.rules.examples.ranks import on_ranks


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per exit of some ranks that skips a collective of the others."""
    return findings(run, LEFT)


RULE = Rule(
    LEFT,
    "exit-before-collective",
    "A return, break, continue or exit(0) on some ranks skips the collectives that follow, and the"
    " gradient exchange of a wrapped model is one. Measured: after a `continue` on one rank every"
    " later step pairs different batches (13 instead of 12, no error); after a `break` or a return"
    " the others wait for the time limit. An error on one rank is different: torchrun ends the"
    " whole job, so `raise` and `exit(1)` are not reported, nor is leaving after the last"
    " collective.",
    "pytorch/audio#3749; lightning#20536; torchrun ends all ranks when one fails; BUGS C03, C10",
    lint=lint,
    bad=(
        on_ranks(
            """
            value = total(value, rank)
            dist.barrier()
            """,
            """

            def total(value, rank):
                if rank != 0:
                    return value  # DDP802
                dist.all_reduce(value)
                return value
            """,
        ),
        on_ranks("""
            for step in range(10):
                if rank == 0 and step == 3:
                    break  # DDP802
                dist.all_reduce(value)
            """),
    ),
    good=(
        on_ranks(
            "show(value, rank)",
            """

            def show(value, rank):
                dist.all_reduce(value)
                if rank != 0:
                    return
                print(value.item())
            """,
        ),
        on_ranks("""
            if rank == 0 and os.path.exists("value.pt"):
                raise FileExistsError("value.pt")
            dist.all_reduce(value)
            """),
        on_ranks("""
            for step in range(10):
                if step == 3:
                    break
                dist.all_reduce(value)
            """),
    ),
)
