"""DDP112: a barrier before the process has its GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.ranks.words import DDP, DIST
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING
from ddpify.rules.shared.placing import backends, chosen, elsewhere

_MOVE_TENSORS = frozenset(
    "all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter_tensor".split()
)
BARRIER = "torch.distributed.barrier"


def lint(run: Run) -> Iterable[Finding]:
    """Yield the first barrier of an NCCL group for which no GPU was chosen."""
    if run.session is None or run.frameworks or backends(run) != {"nccl"}:
        return
    for call in run.named(BARRIER):
        if chosen(run, call.order) or _has_worked(run, call):
            return
        if call.everywhere and not _says_device(call) and not elsewhere(run, call):
            yield Finding(
                "DDP112",
                call.site,
                "NCCL has to guess the GPU of this barrier: a hang if ranks guess the same one",
                Severity.WARNING,
                advice="call torch.cuda.set_device(local_rank) before, or pass device_ids",
                because=((run.session.site, "the group is opened without device_id"),),
            )
            return


def _has_worked(run: Run, barrier: RankCall) -> bool:
    """Whether NCCL has moved tensors before: the barrier takes the GPU of those."""
    return any(
        call.name == DDP or (call.name.startswith(DIST) and call.method in _MOVE_TENSORS)
        for call in run.calls
        if call.order < barrier.order
    )


def _says_device(call: RankCall) -> bool:
    return (
        call.star or not call.kwargs.keys().isdisjoint({"device_ids", "group"}) or bool(call.args)
    )


RULE = Rule(
    "DDP112",
    "barrier-before-device",
    "A barrier moves data on the GPU as any collective of NCCL does. Where neither set_device nor"
    " device_id has said which, it takes the one with the rank's number (or the current one, GPU 0"
    " for all, in older versions): wrong as soon as that is not the rank's own, and then it hangs.",
    "pytorch#124714, #60752; BUGS L17",
    bad=(
        changed(
            PROCESS,
            (
                '    torch.cuda.set_device(local_rank)\n    dist.init_process_group("nccl")\n',
                '    dist.init_process_group("nccl")\n    dist.barrier()  # DDP112\n'
                "    torch.cuda.set_device(local_rank)\n",
            ),
        ),
        changed(
            TRAINING,
            ("    torch.cuda.set_device(gpu)\n", ""),
            ('backend="nccl")\n', 'backend="nccl")\n    dist.barrier()  # DDP112\n'),
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(
            PROCESS,
            (
                '    torch.cuda.set_device(local_rank)\n    dist.init_process_group("nccl")\n',
                '    dist.init_process_group("nccl")\n    dist.barrier(device_ids=[local_rank])\n'
                "    torch.cuda.set_device(local_rank)\n",
            ),
        ),
    ),
    lint=lint,
    severity=Severity.WARNING,
    fixes=False,
)
