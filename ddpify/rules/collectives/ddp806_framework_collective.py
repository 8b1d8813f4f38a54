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


def _lit(hooks: str) -> Example:
    return Example(
        (
            (
                "main.py",
                f"""import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

{hooks}

if __name__ == "__main__":
    trainer = L.Trainer(devices=2, strategy="ddp", max_epochs=1)
    trainer.fit(Net(), DataLoader(TensorDataset(torch.zeros(64, 8)), batch_size=8))
""",
            ),
        )
    )


def _fabric(end: str) -> Example:
    return Example(
        (
            (
                "main.py",
                f"""import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = L.Fabric(devices=2, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    rows = TensorDataset(torch.zeros(64, 8))
    loader = fabric.setup_dataloaders(DataLoader(rows, batch_size=8, shuffle=True))
    for (x,) in loader:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        fabric.backward(loss)
        optimizer.step()
{end}

if __name__ == "__main__":
    main()
""",
            ),
        )
    )


def _handed_over(end: str) -> Example:
    return Example(
        (
            (
                "main.py",
                f"""import json
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

args = TrainingArguments(output_dir="out")
rows = load_dataset("glue", "mrpc")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
trainer = Trainer(model=model, args=args, train_dataset=rows["train"])
trainer.train()
{end}""",
            ),
        )
    )


RULE = Rule(
    FRAMEWORK,
    "framework-collective-on-some-ranks",
    "Accelerator.gather, reduce, prepare and wait_for_everyone, Fabric's setup, barrier, save, load"
    " and all_gather, Lightning's Trainer.save_checkpoint and log_dir, self.log(sync_dist=True),"
    " the Hugging Face Trainer's train, evaluate and predict are collectives: under"
    " is_main_process, is_global_zero or @rank_zero_only the ranks wait for each other (measured)."
    " get_state_dict, save_state and the Trainer's save_model are some where the model is sharded,"
    " save_state also where it numbers checkpoints; else rank 0 alone saves its own random states."
    " Accelerator.save and print are guarded inside and may stand anywhere.",
    "ray#56997; accelerate#2785, #2690; lightning#18148, #19780; BUGS C08",
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
        _accelerated(
            "    if accelerator.is_main_process:\n"
            "        judge = accelerator.prepare(nn.Linear(8, 2))  # DDP806\n"
            "        print(judge)\n"
        ),
        _lit(
            "    @rank_zero_only\n"
            "    def on_fit_start(self):\n"
            "        print(self.trainer.log_dir)  # DDP806\n"
        ),
        _lit(
            "    @rank_zero_only\n"
            "    def on_train_epoch_end(self):\n"
            '        print("done", file=open("done.txt", "w"))\n'
            "        self.trainer.strategy.barrier()  # DDP806\n"
        ),
        _fabric(
            "    if fabric.is_global_zero:\n"
            '        fabric.load("last.ckpt", {"model": model})  # DDP806\n'
        ),
        _handed_over(
            "if trainer.is_world_process_zero():\n    print(trainer.evaluate())  # DDP806\n"
        ),
    ),
    good=(
        _lit(
            "    def on_fit_start(self):\n"
            "        place = self.trainer.log_dir\n"
            "        if self.trainer.is_global_zero:\n"
            "            print(place)\n"
        ),
        _lit(
            "    @rank_zero_only\n"
            "    def on_train_epoch_end(self):\n"
            '        print("done", file=open("done.txt", "w"))\n'
        ),
        _fabric('    fabric.load("last.ckpt", {"model": model})\n'),
        _handed_over(
            "numbers = trainer.evaluate()\n"
            "if trainer.is_world_process_zero():\n"
            '    json.dump(numbers, open("eval.json", "w"))\n'
        ),
        _handed_over('json.dump(trainer.evaluate(), open("eval.json", "w"))\n'),
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
