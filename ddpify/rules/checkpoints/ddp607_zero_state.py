"""DDP607: the state of a ZeRO optimizer is asked for before it is gathered."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING

ZERO = ".ZeroRedundancyOptimizer"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per state that was not consolidated before."""
    gathered = [call.order for call in run.methods("consolidate_state_dict")]
    for call in run.methods("state_dict"):
        if _is_zero(call) and not any(order < call.order for order in gathered):
            yield Finding(
                "DDP607",
                call.site,
                "each rank holds a part of this state: RuntimeError, it was not consolidated",
                Severity.ERROR,
                advice="call consolidate_state_dict(to=0) on all ranks before",
            )


def _is_zero(call: RankCall) -> bool:
    things = call.receiver.things if call.receiver is not None else ()
    return bool(things) and all(t.kind == "result" and t.name.endswith(ZERO) for t in things)


_IMPORT = (
    "from torch import nn\n",
    "from torch import nn\n" "from torch.distributed.optim import ZeroRedundancyOptimizer\n",
)

RULE = Rule(
    "DDP607",
    "zero-state-not-consolidated",
    "ZeroRedundancyOptimizer keeps on each rank the state of its own share of the parameters."
    ' state_dict() raises "Optimizer state has not been consolidated on this rank" until'
    " consolidate_state_dict, a collective, was called on all ranks.",
    "torch.distributed.optim documentation; BUGS K10",
    bad=(
        changed(
            PROCESS,
            (
                "torch.optim.SGD(model.parameters(), lr=0.1)",
                "ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)",
            ),
            _IMPORT,
            (
                'torch.save(net.state_dict(), "net.pt")',
                'torch.save(optimizer.state_dict(), "opt.pt")  # DDP607',
            ),
        ),
        changed(
            TRAINING,
            (
                "from torch import nn, optim\n",
                "from torch import nn, optim\n"
                "from torch.distributed.optim import ZeroRedundancyOptimizer as Zero\n",
            ),
            ("optim.AdamW(self.model.parameters())", "Zero(self.model.parameters(), optim.AdamW)"),
            (
                'torch.save(self.plain.state_dict(), "plain.pt")',
                'torch.save(self.optimizer.state_dict(), "optimizer.pt")  # DDP607',
            ),
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(
            PROCESS,
            (
                "torch.optim.SGD(model.parameters(), lr=0.1)",
                "ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)",
            ),
            _IMPORT,
            (
                "        if dist.get",
                "        optimizer.consolidate_state_dict(to=0)\n        if dist.get",
            ),
            (
                'torch.save(net.state_dict(), "net.pt")',
                'torch.save(optimizer.state_dict(), "opt.pt")',
            ),
        ),
    ),
    lint=lint,
    fixes=False,
)
