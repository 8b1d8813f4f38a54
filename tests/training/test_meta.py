"""``--fsdp-meta``: rank 0 builds the model, the others its shapes, and they train what one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.training.test_shard_options import MADE, SCRIPT, Changes, trained
from tests.training.test_sharded import distance

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

DATA = SCRIPT[SCRIPT.index("    rows = ") : SCRIPT.index(MADE)]
HEAD = "        self.head = nn.Linear(width, 3)\n"
TIED = """\
        self.inner = nn.Linear(width, width, bias=False)
        self.outer = nn.Linear(width, width, bias=False)
        self.outer.weight = self.inner.weight
        self.register_buffer("shift", torch.rand(width), persistent=False)
        self.head = nn.Linear(width, 3)
        self.head.bias.requires_grad_(False)
        self.apply(self.draw)

    @torch.no_grad()
    def draw(self, layer):
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.3)
"""
BUILT: Changes = (
    ("Dataset\n\n\nclass Block", "Dataset\nimport os\n\n\nclass Block"),
    (HEAD, TIED),
    ("return self.head(x)", "return self.head(self.outer(self.inner(x)) + self.shift)"),
    # Data that is drawn after the model differs where a rank has not drawn the model's numbers.
    (DATA, ""),
    (
        MADE,
        f"{MADE}    for p in model.parameters():\n        p.data.mul_(1.5)\n"
        f"    model.to(torch.device('cpu'))\n{DATA}",
    ),
)
# How many elements of weights a rank has before it shards them, and of buffers.
COUNTS = (
    (
        "    if is_distributed():\n",
        "    if is_distributed():\n"
        "        held = [t for t in (*model.parameters(), *model.buffers()) if not t.is_meta]\n"
        "        with open('held.%s.json' % os.environ['RANK'], 'w') as file:\n"
        "            file.write(str(sum(t.numel() for t in held)))\n",
    ),
)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_one_rank_has_the_model_and_all_train_it(ranks: int, tmp_path: Path) -> None:
    """Tied, frozen and drawn weights, a buffer of no file, and data that is drawn behind them."""
    (said, one), (says, two) = trained(tmp_path, BUILT, ranks, COUNTS, fsdp_meta=True)
    assert said == says
    assert distance(one, two) < 1e-10
    files = sorted((tmp_path / "two").glob("held.*.json"))
    held = [json.loads(file.read_text()) for file in files]
    shared = sum(t.numel() for t in one["model"].values()) - 64 + 8  # tied; a buffer of no file
    assert held == [shared, *[0] * (ranks - 1)]


def test_weights_that_are_read_before_are_rank_0s(tmp_path: Path) -> None:
    torch.manual_seed(7)
    state = {
        name: torch.randn(shape, dtype=torch.float64)
        for name, shape in (("stem.weight", (8, 5)), ("head.bias", (3,)))
    }
    torch.save(state, tmp_path / "first.pt")
    load = f"    model.load_state_dict(torch.load({str(tmp_path / 'first.pt')!r}), strict=False)\n"
    (said, one), (says, two) = trained(tmp_path, ((MADE, MADE + load),), fsdp_meta=True)
    assert said == says
    assert distance(one, two) < 1e-10
