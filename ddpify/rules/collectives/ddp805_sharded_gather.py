"""DDP805: only some ranks gather what is sharded over all."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule
from ddpify.rules.collectives.divergence import SHARDED, findings
from ddpify.rules.examples.ranks import on_ranks


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per condition on the rank around a gather of shards."""
    return findings(run, SHARDED)


_TOP = """from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
"""
_SHARD = """
torch.manual_seed(0)
model = nn.Linear(8, 8)
fully_shard(model)
"""

RULE = Rule(
    SHARDED,
    "sharded-gather-on-some-ranks",
    "full_tensor(), get_model_state_dict(), FSDP's state dicts, torch.distributed.checkpoint.save()"
    " and consolidate_state_dict() put together what is spread over all ranks, so all have to call"
    " them; the condition belongs around the writing. So does clip_grad_norm_ of a fully_shard-ed"
    " model: the norm is of all shards. On rank 0 alone they wait for the time limit"
    " (measured). repr() and the state_dict() of a fully_shard-ed model do not communicate.",
    "bergson#376, #380; pytorch#73383, #134095; BUGS C07",
    lint=lint,
    bad=(
        on_ranks(
            _SHARD + "if rank == 0:\n"
            '    torch.save(model.weight.full_tensor(), "w.pt")  # DDP805\ndist.barrier()',
            _TOP,
        ),
        on_ranks(
            _SHARD + "if rank == 0:\n    state = get_model_state_dict(model)  # DDP805\n"
            '    torch.save(state, "model.pt")\ndist.barrier()',
            _TOP,
        ),
        on_ranks(
            _SHARD + "model(torch.ones(2, 8)).mean().backward()\nif rank == 0:\n"
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # DDP805\n"
            "torch.optim.SGD(model.parameters(), lr=0.1).step()\ndist.barrier()",
            _TOP,
        ),
    ),
    good=(
        on_ranks(
            _SHARD + "model(torch.ones(2, 8)).mean().backward()\n"
            "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "torch.optim.SGD(model.parameters(), lr=0.1).step()\n"
            "if rank == 0:\n    print(norm.item())",
            _TOP,
        ),
        on_ranks(
            _SHARD
            + 'weight = model.weight.full_tensor()\nif rank == 0:\n    torch.save(weight, "w.pt")',
            _TOP,
        ),
    ),
)
