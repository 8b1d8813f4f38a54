"""B3, a text in columns: batches without a DataLoader, and a state carried from one to the next."""

from __future__ import annotations

from tests.verify.hazards.base import Hazard, changed

LANGUAGE = '''import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.rnn = nn.RNN(8, 16)
        self.head = nn.Linear(16, 11)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.embed(tokens), hidden)
        return self.head(output), hidden


def batchify(stream, columns):
    """Cut the stream into columns: each goes on from batch to batch, with its hidden state."""
    length = len(stream) // columns
    return stream[: length * columns].view(columns, length).t().contiguous()


def main():
    torch.manual_seed(1)
    source = batchify(torch.arange(520) ** 2 // 3 % 11, 8)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        hidden = torch.zeros(1, source.size(1), 16)
        for start in range(0, len(source) - 1, 16):
            tokens = source[start : start + 16]
            targets = source[start + 1 : start + 17]
            optimizer.zero_grad()
            output, hidden = model(tokens, hidden.detach())
            loss = criterion(output.flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
    torch.save(model.state_dict(), "last.pt")


if __name__ == "__main__":
    main()
'''
LANGUAGE_DDP = changed(
    LANGUAGE,
    ("import torch\nfrom", "import torch\nimport torch.distributed as dist\nfrom"),
    (
        "    torch.manual_seed(1)\n",
        '    dist.init_process_group("gloo")\n    rank, world = dist.get_rank(), '
        "dist.get_world_size()\n    torch.manual_seed(1)\n",
    ),
    (
        "    model = Net()\n",
        "    net = Net()\n    model = nn.parallel.DistributedDataParallel(net)\n",
    ),
    (
        '    torch.save(model.state_dict(), "last.pt")\n',
        '    if rank == 0:\n        torch.save(net.state_dict(), "last.pt")\n'
        "    dist.destroy_process_group()\n",
    ),
)
TIME_CUT = Hazard(
    number="B3.31",
    title="each piece of text is divided in time, not by columns: the hidden state skips",
    rule="DDP202",
    original=LANGUAGE,
    wrong=changed(
        LANGUAGE_DDP,
        (
            "            tokens = source[start : start + 16]\n"
            "            targets = source[start + 1 : start + 17]\n",
            "            first, part = start + rank * 16 // world, 16 // world\n"
            "            tokens = source[first : first + part]\n"
            "            targets = source[first + 1 : first + part + 1]\n",
        ),
    ),
    right=changed(LANGUAGE_DDP, ("% 11, 8)\n", "% 11, 8)[:, rank::world]\n")),
    failing=("gradients", "trajectory"),
)

HAZARDS: tuple[Hazard, ...] = (TIME_CUT,)
