"""A program that somebody else has distributed ends in the same proof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify import cli

# In the manner of spro/char-rnn.pytorch: chunks of a text, drawn where they are needed.
ORIGINAL = """import random
import torch
from torch import nn

TEXT = [letter % 7 for letter in range(300)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.cell = nn.Embedding(7, 8), nn.GRUCell(8, 8)
        self.out = nn.Linear(8, 7)

    def forward(self, letter, state):
        state = self.cell(self.letters(letter), state)
        return self.out(state), state

    def begin(self, rows):
        return torch.zeros(rows, self.cell.hidden_size)


def chunks(rows):
    starts = [random.randint(0, len(TEXT) - 9) for _ in range(rows)]
    return torch.tensor([TEXT[start : start + 9] for start in starts])


def train(letters):
    state, loss = net.begin(8), 0
    net.zero_grad()
    for place in range(8):
        out, state = net(letters[:, place], state)
        loss += nn.functional.cross_entropy(out, letters[:, place + 1])
    loss.backward()
    adam.step()
    return loss.item()


net = Net()
adam = torch.optim.Adam(net.parameters())
for step in range(3):
    print("loss", train(chunks(8)))
"""
BY_HAND = (
    (
        "import torch\n",
        "import torch\nimport torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel\n",
    ),
    ("net.begin(8), 0", "net.module.begin(8 // dist.get_world_size()), 0"),
    (
        "    state, loss",
        "    dist.broadcast(letters, 0)\n"
        "    letters = letters.chunk(dist.get_world_size())[dist.get_rank()]\n    state, loss",
    ),
    (
        "    return loss.item()",
        "    mean = loss.detach()\n    dist.all_reduce(mean)\n"
        "    return mean.item() / dist.get_world_size()",
    ),
    ("net = Net()", 'dist.init_process_group("gloo")\nnet = DistributedDataParallel(Net())'),
    (
        '    print("loss", train(chunks(8)))\n',
        "    loss = train(chunks(8))\n    if dist.get_rank() == 0:\n"
        '        print("loss", loss)\ndist.destroy_process_group()\n',
    ),
)


def by_hand(*left_out: str) -> str:
    text = ORIGINAL
    for old, new in BY_HAND:
        assert old in text
        text = text.replace(old, new, 1)
    for line in left_out:
        assert line in text
        text = text.replace(line, "")
    return text


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "failed"),
    [
        pytest.param(by_hand(), set(), id="right"),
        pytest.param(
            by_hand("    dist.broadcast(letters, 0)\n"),
            {"trajectory", "gradients"},
            id="each-rank-draws",
        ),
    ],
)
def test_it_is_proven_or_not(
    text: str, failed: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = tmp_path / "original" / "main.py"
    script = tmp_path / "project" / "main.py"
    for file, content in ((original, ORIGINAL), (script, text)):
        file.parent.mkdir()
        file.write_text(content)
        (file.parent / "requirements.txt").touch()
    wanted = cli.TO_DO if failed else cli.CLEAN
    flags = ["--baseline", str(original.parent), "--json=-"]
    assert cli.main(["verify", str(script), *flags]) == wanted
    found = json.loads(capsys.readouterr().out)
    assert failed <= {one["name"] for one in found["checks"] if one["verdict"] == "fail"}
    assert found["passed"] is not bool(failed)
