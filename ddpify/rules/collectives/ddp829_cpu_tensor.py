"""DDP829: a tensor in the CPU's memory in a collective of NCCL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.collective import Collective, collective
from ddpify.ranks.model import RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.tensors import on_cpu

_TENSORS: Final = frozenset(
    "tensor tensors tensor_list input_tensor output_tensor input output".split()
)
_DEFAULTS: Final = ("torch.set_default_device", "torch.set_default_tensor_type")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per tensor that NCCL cannot move."""
    backend = run.session.arg(0, "backend") if run.session is not None else None
    if backend is None or backend.constant != "nccl" or any(run.named(*_DEFAULTS)):
        return
    for call in run.calls:
        shared = collective(call)
        if shared is None or shared.group is not None or call.star:
            continue
        value = next(filter(on_cpu, _tensors(shared)), None)
        if value is not None and value.things[0].site is not None:
            yield Finding(
                "DDP829",
                call.site,
                f"the backend is NCCL, and {call.method}() is given a tensor of the CPU: a crash",
                Severity.ERROR,
                advice='make it with device="cuda", or use the backend "cpu:gloo,cuda:nccl"',
                because=((value.things[0].site, "made without a device"),),
            )


def _tensors(shared: Collective) -> Iterator[RankValue]:
    for name in shared.parameters:
        value = shared.given(name) if name in _TENSORS else None
        if value is not None:
            yield value
            yield from value.items or ()


def _with_nccl(body: str) -> Example:
    """The program with the backend for GPUs."""
    (name, text), *_ = on_ranks(body).files
    device = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'
    return Example(((name, text.replace('"gloo")', f'"nccl")\n    {device}')),))


RULE = Rule(
    "DDP829",
    "cpu-tensor-in-nccl",
    "NCCL moves what is in the memory of GPUs. A tensor that torch.tensor(…) makes is on the CPU,"
    " unless its device is said, and so are the lists to gather into. The error is `No backend"
    " type associated with device type cpu` (by the documentation: no GPU was here to run it).",
    "torch.distributed documentation, Backends",
    lint=lint,
    bad=(
        _with_nccl("""
            hits, total = 3, 4
            counts = torch.tensor([hits, total])
            dist.all_reduce(counts)  # DDP829
            """),
        _with_nccl("""
            value = value.cuda()
            parts = [torch.zeros(1) for _ in range(world)]
            dist.all_gather(parts, value)  # DDP829
            """),
    ),
    good=(
        _with_nccl("""
            counts = torch.tensor([3, 4]).cuda()
            dist.all_reduce(counts)
            others = torch.tensor([3, 4], device="cuda")
            dist.all_reduce(others)
            """),
        _with_nccl("""
            slow = dist.new_group(backend="gloo")
            dist.all_reduce(torch.tensor([3, 4]), group=slow)
            """),
        on_ranks("dist.all_reduce(torch.tensor([3, 4]))"),
    ),
    fixes=False,
)
