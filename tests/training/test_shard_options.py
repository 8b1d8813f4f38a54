"""Options of ``--strategy fsdp``, and what meets shards, held against training in one process.

Two ranks train a small model in float64, in the order of the samples, and write a checkpoint: the
one that the script as it was writes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import write
from tests.support import warm
from tests.support.torchrun import torchrun
from tests.training.test_sharded import distance, environment

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, width)

    def forward(self, x):
        return x + self.mlp(self.norm(x)).tanh()


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Linear(5, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
    held = DataLoader(TensorDataset(torch.randn(13, 5), torch.randint(0, 3, (13,))), batch_size=4)
    loader = DataLoader(rows, batch_size=8)
    model = Net(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-1)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        hits = 0
        with torch.no_grad():
            for x, y in held:
                hits += (model(x).argmax(1) == y).sum().item()
        print(epoch, hits / 13)
    torch.save({"model": model.state_dict(), "adam": optimizer.state_dict()}, "last.pt")


if __name__ == "__main__":
    main()
"""
FIRST = "            optimizer.zero_grad()\n"
BACK = "            loss.backward()\n"
STEP = "            optimizer.step()\n"
LOOK = "            with torch.no_grad():\n                hits = (model(x).argmax(1) == y).sum()\n"
CLIP = "            nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"

MADE = "    model = Net(8, 2)\n"
LOSS = "            loss = nn.functional.cross_entropy(model(x), y)\n"

Changes = tuple[tuple[str, str], ...]


def trained(
    folder: Path, changes: Changes, ranks: int = 2, after: Changes = (), **chosen: Any
) -> list[tuple[str, Any]]:
    """What the script prints and writes: in one process as it was, on two ranks as migrated.

    ``after``: what is changed in what is migrated.
    """
    text = SCRIPT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    entries = [folder / name / "main.py" for name in ("one", "two")]
    for entry in entries:
        entry.parent.mkdir()
        entry.write_text(text)
    outcome = migrate([entries[1]], Settings(strategy="fsdp", **chosen))
    assert not outcome.refusals, outcome.refusals[0].message
    write(outcome.changes, outcome.root)
    text = entries[1].read_text()
    for old, new in after:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    entries[1].write_text(text)
    command = [warm.python(), "main.py"]
    one = subprocess.run(
        command,
        cwd=entries[0].parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert one.returncode == 0, one.stderr
    two = torchrun(entries[1], ranks, cwd=entries[1].parent, timeout=240)
    assert two.returncode == 0, two.stderr
    return [
        (said, torch.load(entry.parent / "last.pt"))
        for said, entry in zip((one.stdout, two.rank_stdout[0]), entries, strict=True)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(((STEP, LOOK + CLIP + STEP),), id="looked-at-and-clipped-before-a-step"),
        pytest.param(
            ((FIRST, f"{LOOK}            model.zero_grad()\n"),),
            id="looked-at-first",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_weights_that_stay_until_a_backward_are_never_old(changes: Changes, tmp_path: Path) -> None:
    """Without the hook these were 0.20 and 0.03 off after six steps, measured with torch 2.13."""
    (said, one), (says, two) = trained(tmp_path, changes, fsdp_reshard=False)
    assert said == says
    assert distance(one, two) < 1e-12


COMPILED = '    {} = torch.compile(model, backend="aot_eager")\n'


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(((MADE, MADE + COMPILED.format("model")),), id="compiled"),
        pytest.param(
            ((MADE, f"{MADE}    if loader is not None:\n    {COMPILED.format('model')}"),),
            id="under-a-condition",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            (
                (MADE, MADE + COMPILED.format("fast")),
                (LOSS, LOSS.replace("model(", "fast(")),
            ),
            id="under-another-name",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            ((MADE, f'{MADE}    model.compile(backend="aot_eager")\n'),),
            id="in-place",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_compiled_it_trains_the_same_and_names_are_the_scripts(
    changes: Changes, tmp_path: Path
) -> None:
    """Hooks that gather weights end a graph: what is compiled are the blocks, from one graph."""
    (said, one), (says, two) = trained(tmp_path, changes)
    assert said == says
    assert list(one["model"]) == list(two["model"])
    assert distance(one, two) < 1e-12


AMP = (
    (
        MADE,
        f'{MADE}    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)\n',
    ),
    (LOSS, f"            with torch.autocast('cpu', dtype=torch.float16):\n    {LOSS}"),
    (BACK, "            scaler.scale(loss).backward()\n            scaler.unscale_(optimizer)\n"),
    (STEP, f"{CLIP}            scaler.step(optimizer)\n            scaler.update()\n"),
    ("        model.eval()\n", "        print(scaler.get_scale())\n        model.eval()\n"),
    ("TensorDataset(torch.randn(48, 5),", "TensorDataset(torch.randn(48, 5) * large,"),
    (
        "    torch.manual_seed(0)\n",
        "    torch.manual_seed(0)\n    large = torch.ones(48, 1)\n    large[20] = 1e9\n",
    ),
    ("torch.float64", "torch.float32"),
    ("lr=1e-1", "lr=1e-3"),
)


def test_all_ranks_skip_the_steps_of_a_scaler_that_one_sample_spoils(tmp_path: Path) -> None:
    """It is too large for float16, and one rank's."""
    (said, one), (says, two) = trained(tmp_path, AMP)
    assert said == says
    steps = [float(one["adam"]["state"][0]["step"]) for one in (one, two)]
    assert steps == [10.0, 10.0], "of 12"
    assert distance(one["model"], two["model"]) < 2e-3


STEM = """class Stem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide = nn.Linear(5, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.narrow(self.wide(x).tanh())


class Net("""
ROOT = "        fully_shard(model, reshard_after_forward=True)\n"
UNITS = """        with open(f"units{torch.distributed.get_rank()}.txt", "w") as file:
            named = model.named_modules()
            print(*[n for n, m in named if hasattr(m, "set_reshard_after_forward")], file=file)
"""


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({}, id="plain"),
        pytest.param({"fsdp_meta": True, "fsdp_reshard": False}, id="meta-and-whole-weights"),
    ],
)
def test_parts_of_a_size_are_units_of_their_own(chosen: dict[str, Any], tmp_path: Path) -> None:
    """The outer part counts what its inner ones leave: of 456 numbers 192, where 264 are one."""
    changes = (("class Net(", STEM), ("nn.Linear(5, width)", "Stem(width)"))
    for size, named in ((300, "stem blocks.0 blocks.1"), (200, "stem.narrow blocks.0 blocks.1")):
        folder = tmp_path / str(size)
        folder.mkdir()
        after = ((ROOT, ROOT + UNITS),)
        found = trained(folder, changes, after=after, fsdp_min_params=size, **chosen)
        (said, one), (says, two) = found
        assert said == says
        assert distance(one, two) < 1e-12
        assert (folder / "two" / "units0.txt").read_text().strip() == named
