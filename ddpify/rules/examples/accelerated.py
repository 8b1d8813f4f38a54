"""A small correct program with Accelerate, into which examples of rules put their lines."""

from __future__ import annotations

from ddpify.rules.base import Example
from ddpify.rules.examples import changed

ACCELERATED = Example(
    (
        (
            "main.py",
            """import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    rows = torch.linspace(-1, 1, 328).reshape(41, 8)
    data = TensorDataset(rows, (rows.sum(dim=1) > 0).long())
    loader = DataLoader(data, batch_size=4, shuffle=True)
    test = DataLoader(data, batch_size=4)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = StepLR(optimizer, step_size=5)
    model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)
    for epoch in range(3):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        plan.step()
        model.eval()
        right = count = 0
        with torch.no_grad():
            for x, y in test:
                hits = accelerator.gather_for_metrics(model(x).argmax(dim=1) == y)
                right, count = right + hits.sum(), count + len(hits)
        accelerator.print(epoch, right / count)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "net.pt")


if __name__ == "__main__":
    main()
""",
        ),
    )
)
_HITS = "hits = accelerator.gather_for_metrics(model(x).argmax(dim=1) == y)"
# The samples that fill up the last batch are counted.
GATHERED = changed(
    ACCELERATED, (_HITS, "hits = accelerator.gather(model(x).argmax(dim=1) == y)  # DDP209")
)
GATHERED_ENTRIES = changed(
    ACCELERATED,
    (
        _HITS,
        'each = F.cross_entropy(model(x), y, reduction="none")\n'
        "                hits = accelerator.gather(each)  # DDP209",
    ),
)
# Cut off by hand, dropped by the loader, one number of each batch.
GATHERED_RIGHTLY = (
    changed(
        ACCELERATED,
        (
            _HITS,
            "hits = accelerator.gather(model(x).argmax(dim=1) == y)\n"
            "                hits = hits[: len(test.dataset) - count]",
        ),
    ),
    changed(
        ACCELERATED,
        (_HITS, "hits = accelerator.gather(model(x).argmax(dim=1) == y)"),
        ("test = DataLoader(data, batch_size=4)", "test = DataLoader(data, 4, drop_last=True)"),
    ),
    changed(ACCELERATED, (_HITS, "hits = accelerator.gather(F.cross_entropy(model(x), y))[None]")),
)
FABRICATED = Example(
    (
        (
            "main.py",
            """import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = Fabric(devices=2, strategy="ddp")
    fabric.launch()
    rows = torch.linspace(-1, 1, 320).reshape(40, 8)
    data = TensorDataset(rows, (rows.sum(dim=1) > 0).long())
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    loader = fabric.setup_dataloaders(loader)
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            fabric.backward(loss)
            optimizer.step()
    fabric.save("last.ckpt", {"model": model, "optimizer": optimizer})


if __name__ == "__main__":
    main()
""",
        ),
    )
)
