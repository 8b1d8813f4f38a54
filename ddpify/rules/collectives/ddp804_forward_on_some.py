"""DDP804: only some ranks call a wrapped model that communicates in its forward or backward."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule
from ddpify.rules.collectives.divergence import FORWARD, findings
from ddpify.rules.examples.gradients import trained


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per condition on the rank around a forward or backward that communicates."""
    return findings(run, FORWARD)


_NORMED = """
model = DDP(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_TRAIN = """
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
if dist.get_rank() == 0:
    with torch.no_grad():
        {}
"""

RULE = Rule(
    FORWARD,
    "forward-on-some-ranks",
    "DistributedDataParallel broadcasts the buffers of the model (the running averages of batch"
    " norm) in its first forward and in each that follows one with gradients, in eval mode and"
    " under no_grad, too (counted with torch 2.13); FSDP gathers the parameters. Called on rank 0"
    " alone that meets the next collective of the others: measured, an abort with"
    " 'op.preamble.length <= op.nbytes', a broken connection, or a hang. Without buffers it"
    " communicates in one forward alone, that with gradients behind the first backward, and"
    " `model.module(...)` never does.",
    "pytorch#54059, #53979, #20611, #48988; DistributedDataParallel docstring; BUGS C06",
    lint=lint,
    bad=(
        trained(_NORMED, _TRAIN.format("model(rows.tensors[0])  # DDP804")),
        trained(
            _NORMED,
            _TRAIN.format("print(score(model, rows.tensors[0]))  # DDP804"),
            """

            def score(net, x):
                net.eval()
                mean = net(x).mean().item()
                net.train()
                return mean
            """,
        ),
    ),
    good=(
        trained(_NORMED, _TRAIN.format("model.module(rows.tensors[0])")),
        trained(loop=_TRAIN.format("model(rows.tensors[0])")),
        trained(
            _NORMED.replace("4)))", "4)), broadcast_buffers=False)"),
            _TRAIN.format("model(rows.tensors[0])"),
        ),
    ),
)
