"""A loss whose count no edit can make that of all ranks is a refusal, which can be accepted."""

from __future__ import annotations

from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

UNEVEN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randint(0, 5, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
net = nn.Linear(4, 5)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    for x, y in loader:
        scores = net(x)
        loss = scores.square().mean()
        if (y > 0).any():
            loss = loss + criterion(scores[y > 0], y[y > 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_count_under_a_condition_of_the_samples_is_refused(tmp_path: Path) -> None:
    script = put({"train.py": UNEVEN}, tmp_path) / "train.py"
    said = [
        refusal.message for refusal in migrate([script], Settings(whole_batches=False)).refusals
    ]
    assert len(said) == 1
    assert said[0].startswith("train.py:17: DDP401 the loss divides by a count")
    taken = migrate([script], Settings(accept=("DDP401@train.py:17",)))
    assert taken.refusals == ()
    assert taken.changes


def test_packed_sequences_are_counted_over_all_ranks(tmp_path: Path) -> None:
    lines = [
        "from torch.nn.utils.rnn import pack_padded_sequence as pack",
        UNEVEN.replace("(64, 4)", "(64, 7, 4)").replace("(64,)", "(64, 7)"),
    ]
    old = (
        "        loss = scores.square().mean()\n"
        "        if (y > 0).any():\n"
        "            loss = loss + criterion(scores[y > 0], y[y > 0])\n"
    )
    new = (
        "        lengths = [7] * len(x)\n"
        "        scores, y = pack(scores, lengths).data, pack(y, lengths).data\n"
        "        loss = criterion(scores, y)\n"
    )
    text = "\n".join(lines)
    assert old in text
    outcome = migrate(
        [put({"train.py": text.replace(old, new)}, tmp_path) / "train.py"],
        Settings(whole_batches=False),
    )
    after = next(change.after.decode() for change in outcome.changes if change.path == "train.py")
    assert "loss = global_mean(criterion(scores, y), y.numel())" in after
