"""DDP422: memory of the GPU is given back in every step."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import LOOP, trained


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per call that each step of a training loop makes."""
    for call in run.named("torch.cuda.empty_cache", "torch.cuda.memory.empty_cache"):
        if any(run.in_every_round(call, one.loop) for one in run.passes):
            yield Finding(
                "DDP422",
                call.site,
                "every step waits for the GPU and asks the driver for its memory again: the slowest"
                " rank holds up the others each time",
                Severity.NOTE,
                advice="leave it out, or call it once an epoch",
            )


_CALL = "torch.cuda.empty_cache()"
_FREE = f"""
def free():
    {_CALL}  # DDP422
"""

RULE = Rule(
    "DDP422",
    "empty-cache-in-every-step",
    "empty_cache gives the blocks that PyTorch keeps back to the driver: it waits for the GPU, and"
    " the next step pays for cudaMalloc again. It gives the program no more memory than it had. In"
    " DDP all ranks wait in the next all-reduce for the one that takes longest.",
    "torch.cuda.empty_cache docs; PyTorch CUDA semantics, Memory management",
    lint=lint,
    words=("empty_cache",),
    severity=Severity.NOTE,
    bad=(
        trained(loop=f"{LOOP}    {_CALL}  # DDP422"),
        trained(top=_FREE, loop=f"{LOOP}    free()"),
    ),
    good=(
        trained(loop=f"{LOOP}{_CALL}"),
        trained(loop=f"{LOOP}    if x.shape[0] < 8:\n        {_CALL}"),
        trained(
            loop=LOOP.replace(
                "optimizer.zero_grad()",
                "optimizer.zero_grad()\n    if len(x) == 8:\n        continue",
                1,
            )
            + f"    {_CALL}"
        ),
    ),
    fixes=False,
)
