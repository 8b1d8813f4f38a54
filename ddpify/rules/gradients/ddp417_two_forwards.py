"""DDP417: two forwards of a model with BatchNorm before one backward."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.parameters import CONVERT, on_cpu
from ddpify.rules.shared.wrapped import (
    Wrap,
    backwards,
    exclusive,
    forwards,
    innermost,
    reached,
    wraps,
)

_NORM = re.compile(r"\bBatchNorm[123]d\(")
_KNOWN = re.compile(r"torchvision\.models\.(resnet|resnext|wide_resnet|densenet|mobilenet|regnet)")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per second forward whose buffers are broadcast over the first's."""
    for wrap in wraps(run):
        if not _normalises(run, wrap) or on_cpu(run):
            continue
        calls = forwards(run, wrap)
        for backward in backwards(run):
            through = reached(backward, calls)
            for first, second in pairwise(through):
                if _in_a_row(first, second, backward):
                    yield _finding(first, second)


def _in_a_row(first: RankCall, second: RankCall, backward: RankCall) -> bool:
    same = first.loops == second.loops and innermost(second) is innermost(backward)
    return same and first.node is not second.node and not exclusive(first, second)


def _normalises(run: Run, wrap: Wrap) -> bool:
    """Whether the model has BatchNorm whose buffers the wrapper broadcasts."""
    for name in ("broadcast_buffers", "forward_sync_buffers"):
        value = wrap.call.kwargs.get(name)
        if value is not None and value.constant is not True:
            return False
    for call in run.named(CONVERT):
        module = call.arg(0, "module")
        if module is None or any(t in wrap.parts for t in module.things):
            return False
    return any(_has_norm(thing) for thing in wrap.parts)


def _has_norm(thing: RankThing) -> bool:
    if thing.cls is not None:
        return any(_NORM.search(one.module.text(one.node)) for one in thing.cls.mro())
    return bool(_NORM.search(f"{thing.name.rpartition('.')[2]}(") or _KNOWN.match(thing.name))


def _finding(first: RankCall, second: RankCall) -> Finding:
    return Finding(
        "DDP417",
        second.site,
        "a second forward before the backward: DDP writes rank 0's BatchNorm statistics over those"
        " that the first forward saved, and backward may stop with 'modified by an inplace"
        " operation'",
        Severity.WARNING,
        advice="run both halves in one forward (torch.cat), use SyncBatchNorm, or pass"
        " broadcast_buffers=False",
        because=((first.site, "the first forward"),),
    )


_SETUP = """
device = torch.device("cuda", 0)
net = nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4)).to(device)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_LOOP = """
for x, y in loader:
    x = x.to(device)
    one = model(x)
    two = model(x + 0.1)  # DDP417
    optimizer.zero_grad()
    (one - two).pow(2).mean().backward()
    optimizer.step()
"""

RULE = Rule(
    "DDP417",
    "two-forwards-with-buffers",
    "Before a forward that follows one with gradients DistributedDataParallel copies rank 0's"
    " buffers to all ranks, in place. What the earlier one saved of them for its backward is"
    " changed by that: on CUDA the backward stops with 'one of the variables needed for gradient"
    " computation has been modified by an inplace operation'; on the CPU there is no error, and"
    " the gradient is another one (measured: 5 for 1).",
    "pytorch#22095, pytorch#175024; BUGS G20",
    lint=lint,
    severity=Severity.WARNING,
    bad=(trained(_SETUP, _LOOP),),
    good=(
        trained(
            _SETUP.replace("DDP(net)", "DDP(net, broadcast_buffers=False)"),
            _LOOP.replace("  # DDP417", ""),
        ),
    ),
    fixes=False,
)
