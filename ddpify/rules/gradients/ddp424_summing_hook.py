"""DDP424: gradients are added up over the ranks, by a hook or by hand, and not averaged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.gradients.comm_hooks import hooked, summing
from ddpify.rules.gradients.summed_by_hand import summed_by_hand
from ddpify.rules.shared.averaged_by_hand import rescaled
from ddpify.rules.shared.by_ranks import power
from ddpify.rules.shared.optimizers import steps_alike
from ddpify.rules.shared.quotients import is_quotient
from ddpify.rules.shared.wrapped import Wrap, backwards, forwards, reached
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per hook of a wrapper, or collective of gradients, that gives the sum."""
    for found in summed_by_hand(run):
        yield Finding(
            "DDP424",
            found.call.site,
            "gradients are added up over the ranks and not divided: they are N times those of the"
            " mean over all samples, and so is the step",
            Severity.WARNING,
            advice="divide by the number of ranks, or use ReduceOp.AVG",
            because=((found.backward.site, "each rank's mean over its samples"),),
        )
    for wrap, call in hooked(run):
        hook = call.arg(1, "hook")
        functions = [t.info for t in hook.things if t.kind == "function"] if hook else []
        place = summing(functions[0]) if len(functions) == 1 else None
        if place is None or rescaled(run, wrap.covers) or steps_alike(run, wrap.covers):
            continue
        if not _is_divided(run, wrap):
            yield _finding(call, place)


def _is_divided(run: Run, wrap: Wrap) -> bool:
    """Whether a loss of the model was divided already, by what may count all samples, or the
    learning rate is."""
    calls = forwards(run, wrap)
    losses = [b.receiver for b in backwards(run) if b.receiver is not None and reached(b, calls)]
    rates = [v for c in run.calls if c.name.startswith("torch.optim.") for v in c.given]
    divided = any(is_quotient(loss.atoms[0]) for loss in losses)
    return divided or any(power(value) < 0 for value in (*losses, *rates))


def _finding(call: RankCall, place: Site) -> Finding:
    return Finding(
        "DDP424",
        place,
        "the hook adds the gradients of all ranks up: they are N times those that"
        " DistributedDataParallel gives, which averages",
        Severity.WARNING,
        advice="divide the bucket by the number of ranks before it is reduced",
        because=((call.site, "the hook is given here"),),
    )


_HOOK: Final = """

def hook(state, bucket):
    tensor = bucket.buffer(){}
    future = dist.all_reduce(tensor, async_op=True).get_future(){}
    return future.then(lambda done: done.value()[0])


def halved(state, bucket):
    small = bucket.buffer().half()
    work = dist.all_reduce(small, op=dist.ReduceOp.SUM, async_op=True){}

    def grown(done):
        out = bucket.buffer()
        out.copy_(done.value()[0])
        return out

    return work.get_future().then(grown)


"""
_SETUP: Final = """
model = DDP(nn.Linear(16, 4))
model.register_comm_hook(None, {})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    "DDP424",
    "summing-hook",
    "What a communication hook gives is the gradient: DistributedDataParallel divides by the number"
    " of ranks in its own, not after that of another (measured: -4.0, where the mean is -2.0). So"
    " it is with gradients that a program sums by hand: each rank's loss is a mean over its own"
    " samples, and the sum of N such is N times that of all. With SGD that is N times"
    " the step; with Adam and most others, whose steps do not grow with the gradient (measured),"
    " nothing is said.",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook",
    lint=lint,
    words=("register_comm_hook", ".grad"),
    severity=Severity.WARNING,
    bad=(
        trained(_SETUP.format("hook"), top=_HOOK.format("", "  # DDP424", "")),
        trained(_SETUP.format("halved"), top=_HOOK.format("", "", "  # DDP424")),
    ),
    good=(
        trained(_SETUP.format("hook"), top=_HOOK.format(".div_(dist.get_world_size())", "", "")),
        trained(
            _SETUP.format("default_hooks.allreduce_hook"),
            top="from torch.distributed.algorithms.ddp_comm_hooks import default_hooks",
        ),
    ),
    fixes=False,
)
