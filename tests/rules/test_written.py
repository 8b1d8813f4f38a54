"""What a fix writes, where that it removes the finding is not enough."""

from __future__ import annotations

from pathlib import Path

from ddpify.rules.examples import SINGLE, changed
from tests.projects import judged, migrated, put, put_example, read


def test_a_sampler_drops_the_last_where_settings_say_so(tmp_path: Path) -> None:
    entry = put_example(
        changed(
            SINGLE,
            ("    fitting =", '    given = {"drop_last": True}\n    fitting ='),
            ("opt.bs, shuffle=True)", "opt.bs, shuffle=True, **given)"),
        ),
        tmp_path,
    )
    migrated(entry)
    made = "".join(entry.read_text().split())
    assert "distributed_sampler(train_dataset,shuffle=True,drop_last=True)" in made


def test_a_part_of_one_rank_is_not_divided_by_the_count_of_all(tmp_path: Path) -> None:
    shown = "print(signal.std().item() / high)"
    step = "            adam.step()\n"
    lines = f"{step}            high = (label > 1).sum()\n            {shown}\n"
    entry = put_example(changed(SINGLE, (step, lines)), tmp_path)
    (found,) = [f for f in judged(read(entry)) if f.rule == "DDP702"]
    assert not found.fix
    migrated(entry)
    assert shown in entry.read_text()


def test_a_generator_without_end_is_refused(tmp_path: Path) -> None:
    """Nobody counts its passes: each would shuffle as the first."""
    entry = put({"main.py": FOREVER}, tmp_path) / "main.py"
    found = [f for f in judged(read(entry)) if f.rule == "DDP201"]
    assert [(f.site.span.line, f.fix) for f in found] == [(8, ())]
    entry.write_text(FOREVER.replace("while True:", "if loader:"))
    assert not [f for f in judged(read(entry)) if f.rule == "DDP201"]


FOREVER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def forever(loader):
    while True:
        print("again")
        for batch in loader:
            yield batch

if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = forever(loader)
    for step in range(100):
        x, y = next(batches)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
