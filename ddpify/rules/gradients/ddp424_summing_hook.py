"""DDP424: a communication hook adds the gradients up, and does not average them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.by_ranks import power
from ddpify.rules.gradients.comm_hooks import summing
from ddpify.rules.shared.wrapped import wraps
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per hook of a wrapper that gives the sum over the ranks."""
    wrappers = {wrap.wrapper for wrap in wraps(run)}
    if any(b.receiver is not None and power(b.receiver) < 0 for b in run.backwards):
        return  # divided already
    for call in run.methods("register_comm_hook"):
        hook = call.arg(1, "hook")
        mine = call.receiver is not None and not wrappers.isdisjoint(call.receiver.things)
        functions = [t.info for t in hook.things if t.kind == "function"] if hook and mine else []
        if len(functions) == 1 and (place := summing(functions[0])) is not None:
            yield _finding(call, place)


def _finding(call: RankCall, place: Site) -> Finding:
    return Finding(
        "DDP424",
        call.site,
        "the hook adds the gradients of all ranks up: they are N times those that"
        " DistributedDataParallel gives, which averages",
        Severity.WARNING,
        advice="divide the bucket by the number of ranks before it is reduced",
        because=((place, "summed here"),),
    )


_HOOK: Final = """

def hook(state, bucket):
    tensor = bucket.buffer(){}
    future = dist.all_reduce(tensor, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def halved(state, bucket):
    small = bucket.buffer().half()
    work = dist.all_reduce(small, op=dist.ReduceOp.SUM, async_op=True)

    def grown(done):
        out = bucket.buffer()
        out.copy_(done.value()[0])
        return out

    return work.get_future().then(grown)


"""
_SETUP: Final = """
model = DDP(nn.Linear(16, 4))
model.register_comm_hook(None, {}){}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    "DDP424",
    "summing-hook",
    "What a communication hook gives is the gradient: DistributedDataParallel divides by the number"
    " of ranks in its own, not after that of another (measured: -4.0, where the mean is -2.0).",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook",
    lint=lint,
    words=("register_comm_hook",),
    severity=Severity.WARNING,
    bad=(
        trained(_SETUP.format("hook", "  # DDP424"), top=_HOOK.format("")),
        trained(_SETUP.format("halved", "  # DDP424"), top=_HOOK.format("")),
    ),
    good=(
        trained(_SETUP.format("hook", ""), top=_HOOK.format(".div_(dist.get_world_size())")),
        trained(
            _SETUP.format("default_hooks.allreduce_hook", ""),
            top="from torch.distributed.algorithms.ddp_comm_hooks import default_hooks",
        ),
    ),
)
