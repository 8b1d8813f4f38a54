"""DDP806: only some ranks call what Accelerate, Fabric or Lightning do on all."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule
from ddpify.rules.collectives.divergence import FRAMEWORK, findings


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per condition on the rank around a framework's own collective."""
    return findings(run, FRAMEWORK)


def _accelerated(end: str) -> Example:
    return Example(
        (
            (
                "main.py",
                f"""import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator()
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
    loader = DataLoader(rows, batch_size=8, shuffle=True)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
{end}    accelerator.end_training()


if __name__ == "__main__":
    main()
""",
            ),
        )
    )


RULE = Rule(
    FRAMEWORK,
    "framework-collective-on-some-ranks",
    "Accelerator.gather, reduce, wait_for_everyone and get_state_dict, Fabric's barrier and"
    " all_gather, Trainer.save_checkpoint and self.log(sync_dist=True) are collectives: under"
    " is_main_process, is_global_zero or @rank_zero_only the ranks wait for each other (measured)."
    " Accelerator.save and print are guarded inside and may stand anywhere.",
    "ray#56997; accelerate#2785, #2690; BUGS C08",
    lint=lint,
    bad=(
        _accelerated(
            "    if accelerator.is_main_process:\n"
            "        print(accelerator.gather(loss.detach()).mean())  # DDP806\n"
        ),
        _accelerated(
            "    if accelerator.process_index == 0:\n"
            "        accelerator.wait_for_everyone()  # DDP806\n"
            '        accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")\n'
        ),
    ),
    good=(
        _accelerated(
            "    mean = accelerator.gather(loss.detach()).mean()\n"
            "    if accelerator.is_main_process:\n"
            "        print(mean)\n"
        ),
        _accelerated(
            "    if accelerator.is_main_process:\n"
            "        state = accelerator.unwrap_model(model).state_dict()\n"
            '        accelerator.save(state, "model.pt")\n'
        ),
    ),
)
