"""Losses that are no plain means: parts of programs, and examples that are put together of some."""

from __future__ import annotations

from ddpify.rules.examples import SCRIPT, SINGLE, changed

MASKED = (
    "            objective = nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
    "            use = (label < 3).cuda()\n"
    "            each = nn.functional.cross_entropy(\n"
    '                net(signal.cuda()), label.cuda(), reduction="none"\n            )\n'
    "            objective = (each * use).sum() / use.sum()\n",
)
POSITIVES = """class Positives(nn.Module):
    def forward(self, scores, wanted):
        positive = wanted > 0
        number = positive.sum().clamp(min=1)
        kept = scores[positive.unsqueeze(1).expand_as(scores)].view(-1, 4)
        off = nn.functional.mse_loss(kept, kept * 0, reduction="sum")
        return off / number


"""
MINED = """def hard_negatives(scores, label):
    near = scores.detach() > scores.detach().max() / 2
    near[torch.arange(len(label)), label] = True
    return -(scores.log_softmax(1) * near.cpu()).sum() / near.sum()


"""
JUDGED = """class Judged(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 4)

    def forward(self, signal, label=None):
        scores = self.body(signal)
        off = None
        if label is not None:
            off = nn.functional.cross_entropy(scores, label, ignore_index=3)  # DDP401
        return scores, off


"""
# What the fix of the first makes.
PARTLY_SCALED = changed(
    SCRIPT,
    (
        "        cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n",
        "        guess = net(x.to(device))\n"
        "        cost = nn.functional.cross_entropy(guess, y.to(device))\n"
        "        cost += 0.1 * guess.square().sum() * get_world_size()\n",
    ),
    ("is_main_process,\n", "get_world_size, is_main_process,\n"),
)
OF_THE_BATCH = (
    changed(  # a mean and a sum: the sum is multiplied by the number of ranks
        SINGLE,
        (
            "objective = nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
            "guess = net(signal.cuda())\n            size = guess.square().sum()\n"
            "            objective = nn.functional.cross_entropy(guess, label.cuda())\n"
            "            objective += 0.1 * size  # DDP401\n"
            "            print(objective.item(), size.item())\n",
        ),
    ),
    changed(  # a mean or a sum, as a setting says: that of the whole batch on each rank
        SINGLE,
        (
            "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
            "nn.CrossEntropyLoss(reduction=HOW)(\n"
            "                net(signal.cuda()),  # DDP401\n"
            "                label.cuda(),  # DDP401\n            )\n",
        ),
        ("import torch\n", "import os\n\nimport torch\n"),
        ("def accuracy", 'HOW = os.environ.get("HOW", "mean")\n\n\ndef accuracy'),
    ),
    changed(  # hard negatives are those near the largest score of the batch
        SINGLE,
        (
            "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
            "hard_negatives(net(signal.cuda()), label)  # DDP401\n",
        ),
        ("def accuracy", f"{MINED}def accuracy"),
    ),
    changed(  # in the model's own forward, over the targets that count
        SINGLE,
        ("def accuracy", f"{JUDGED}def accuracy"),
        (
            "net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))",
            "net = Judged()",
        ),
        ("guess = net(signal.cuda())", "guess = net(signal.cuda())[0]"),
        (
            "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
            "net(signal.cuda(), label.cuda())[1]\n",
        ),
    ),
    changed(  # a term that is there as the mean of the batch says, which noise goes into
        SINGLE,
        (
            "            objective.backward()\n",
            "            noise = torch.tensor(np.random.randn(signal.size(0), 16)).float()\n"
            "            off = net(noise.cuda()).square().mean()\n"
            "            if (2 - off.data).item() > 0:  # DDP401\n"
            "                objective += 2 - off\n"
            "            objective.backward()\n",
        ),
        ("import torch\n", "import numpy as np\nimport torch\n"),
    ),
)
