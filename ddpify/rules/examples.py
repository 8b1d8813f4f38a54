"""Whole small training projects that rules make their examples of, by changing a line or two.

Four are correct under torchrun, each in a style of its own, so that what a changed line brings
up is that line's fault; three are as one process ran them. In a bad example a comment with the
rule's code marks the lines where the rule has to report. ``ddp_utils`` is the copy of the
runtime that ``migrate`` adds; whoever writes an example to disk adds it.
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.rules.base import Example


def changed(base: Example, *changes: tuple[str, str]) -> Example:
    """``base`` with each first text, which stands in it once, replaced by the second.

    Raises:
        ValueError: a text is not there, or more than once.
    """
    files = dict(base.files)
    for old, new in changes:
        holders = [path for path, text in files.items() if old in text]
        if len(holders) != 1 or files[holders[0]].count(old) != 1:
            raise ValueError(f"an example is to be changed where it says {old!r}, once")
        files[holders[0]] = files[holders[0]].replace(old, new)
    return replace(base, files=tuple(files.items()))


def marked(base: Example, code: str, *ends: str) -> Example:
    """``base`` with a comment behind each text, which ends a line: there ``code`` reports."""
    return changed(base, *((f"{end}\n", f"{end}  # {code}\n") for end in ends))


def script(text: str) -> Example:
    """A project of one file."""
    return Example((("main.py", text.lstrip("\n")),))


# As one process ran it: everything in one file, most of it in main().
SINGLE = script("""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def accuracy(net, pairs):
    net.eval()
    right, seen = 0, 0
    with torch.no_grad():
        for signal, label in pairs:
            guess = net(signal.cuda()).argmax(1)
            right += (guess == label.cuda()).sum().item()
            seen += len(label)
    return right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bs", type=int, default=32)
    opt = parser.parse_args()
    torch.manual_seed(7)
    signals, labels = torch.randn(1000, 16), torch.randint(0, 4, (1000,))
    fitting = DataLoader(TensorDataset(signals[:800], labels[:800]), opt.bs, shuffle=True)
    holdout = DataLoader(TensorDataset(signals[800:], labels[800:]), 100)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    adam = torch.optim.Adam(net.parameters())
    for round_ in range(5):
        net.train()
        for signal, label in fitting:
            adam.zero_grad()
            objective = nn.functional.cross_entropy(net(signal.cuda()), label.cuda())
            objective.backward()
            adam.step()
        print("round", round_, "accuracy", accuracy(net, holdout))
    torch.save(net.state_dict(), "net.pth")


if __name__ == "__main__":
    main()
""")

# As one process ran it: a class that holds everything, the loaders in a dict.
LEARNER = Example(
    (
        (
            "main.py",
            """import torch
from torch.utils.data import DataLoader, TensorDataset

from learner import Learner

if __name__ == "__main__":
    rows = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
    others = TensorDataset(torch.randn(100, 8), torch.randn(100, 1))
    feeds = {
        "fit": DataLoader(rows, batch_size=64, shuffle=True),
        "check": DataLoader(others, batch_size=50),
    }
    Learner(feeds, "cuda").run(3)
""",
        ),
        (
            "learner.py",
            """import torch
from torch import nn


class Learner:
    def __init__(self, feeds, place):
        self.feeds, self.place = feeds, place
        self.core = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.core.to(place)
        self.solver = torch.optim.SGD(self.core.parameters(), lr=0.01)
        self.measure = nn.MSELoss()

    def once(self):
        self.core.train()
        for inputs, wanted in self.feeds["fit"]:
            self.solver.zero_grad()
            off = self.measure(self.core(inputs.to(self.place)), wanted.to(self.place))
            off.backward()
            self.solver.step()

    def run(self, times):
        for turn in range(times):
            self.once()
            torch.save({"core": self.core.state_dict(), "turn": turn}, "core.pt")
""",
        ),
    )
)

# As one process ran it on all GPUs: nn.DataParallel, from top to bottom.
LEGACY = script("""
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

samples = TensorDataset(torch.randn(2048, 12), torch.randint(0, 3, (2048,)))
batches = DataLoader(samples, batch_size=128, shuffle=True)
judge = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)).cuda()
judge = nn.DataParallel(judge)
if os.path.exists("judge.pt"):
    judge.load_state_dict(torch.load("judge.pt"))
entropy = nn.CrossEntropyLoss().cuda()
optimiser = torch.optim.SGD(judge.parameters(), 0.05)
for number in range(30):
    for facts, verdict in batches:
        optimiser.zero_grad()
        penalty = entropy(judge(facts.cuda()), verdict.cuda())
        penalty.backward()
        optimiser.step()
    torch.save(judge.state_dict(), "judge.pt")
""")

# Correct: a script from top to bottom, without functions.
SCRIPT = script("""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

from ddp_utils import (
    cleanup_distributed, distributed_sampler, fork_random_streams, is_main_process,
    per_rank_batch_size, reduce_mean, save_on_main, set_epoch, setup_distributed, unwrap,
    wrap_model,
)

setup_distributed()
device = "cuda" if torch.cuda.is_available() else "cpu"
rows = TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))
row_sampler = distributed_sampler(rows, shuffle=True)
feed = DataLoader(
    rows,
    batch_size=per_rank_batch_size(256),
    shuffle=row_sampler is None,
    sampler=row_sampler,
)
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
net = wrap_model(net)
solver = torch.optim.SGD(net.parameters(), lr=0.1)
fork_random_streams()
for n in range(20):
    set_epoch(feed, n)
    running = 0.0
    for x, y in feed:
        solver.zero_grad()
        cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        cost.backward()
        solver.step()
        running += cost.item()
    running = reduce_mean(running)
    if is_main_process():
        print(n, running / len(feed))
save_on_main(unwrap(net).state_dict(), "net.pt")
cleanup_distributed()
""")

# Correct: functions in three files, a loader factory, a scheduler, evaluation in shares.
PROJECT = Example(
    (
        (
            "main.py",
            """import argparse

import torch

from ddp_utils import distributed_session, fork_random_streams, is_main_process
from ddp_utils import save_on_main, set_epoch, unwrap, wrap_model
from loops import fit, score
from parts import Classifier, make_loaders


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    config = parser.parse_args()
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    learn, hold = make_loaders(config.batch)
    brain = Classifier().to(place)
    brain = wrap_model(brain)
    optim = torch.optim.AdamW(brain.parameters())
    plan = torch.optim.lr_scheduler.StepLR(optim, 5)
    fork_random_streams()
    top = 0.0
    for lap in range(10):
        set_epoch(learn, lap)
        fit(brain, learn, optim, place)
        result = score(unwrap(brain), hold, place)
        plan.step()
        if is_main_process():
            print(f"lap {lap}: {result:.3f}")
        if result > top:
            top = result
            save_on_main({"brain": unwrap(brain).state_dict(), "lap": lap}, "top.pt")


if __name__ == "__main__":
    with distributed_session():
        main()
""",
        ),
        (
            "loops.py",
            """import torch
import torch.nn.functional as F

from ddp_utils import reduce_sum


def fit(brain, stream, optim, place):
    brain.train()
    for picture, kind in stream:
        picture, kind = picture.to(place), kind.to(place)
        optim.zero_grad()
        F.cross_entropy(brain(picture), kind).backward()
        optim.step()


@torch.no_grad()
def score(brain, stream, place):
    brain.eval()
    hits = seen = 0
    for picture, kind in stream:
        guess = brain(picture.to(place)).argmax(dim=1)
        hits += (guess == kind.to(place)).sum().item()
        seen += kind.size(0)
    hits, seen = reduce_sum(hits, seen)
    return hits / seen
""",
        ),
        (
            "parts.py",
            """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ddp_utils import distributed_sampler, evaluation_sampler, per_rank_batch_size


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, picture):
        return self.head(self.body(picture).relu())


def make_loaders(batch):
    known = TensorDataset(torch.randn(900, 64), torch.randint(0, 10, (900,)))
    unseen = TensorDataset(torch.randn(200, 64), torch.randint(0, 10, (200,)))
    order = distributed_sampler(known, shuffle=True)
    share = evaluation_sampler(unseen)
    return (
        DataLoader(
            known, batch_size=per_rank_batch_size(batch), shuffle=order is None, sampler=order
        ),
        DataLoader(unseen, batch_size=100, sampler=share),
    )
""",
        ),
    )
)

# Correct: a class that holds the model, loaders in a dict, and all that is written to disk.
TRAINER = Example(
    (
        (
            "main.py",
            """import argparse

from torch.utils.data import DataLoader

from ddp_utils import distributed_sampler, distributed_session, evaluation_sampler
from ddp_utils import per_rank_batch_size
from series import Series
from tutor import Tutor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--folder", default="runs/one")
    parser.add_argument("--resume", default="")
    flags = parser.parse_args()
    past, future = Series("past.pt"), Series("future.pt")
    order, share = distributed_sampler(past, shuffle=True), evaluation_sampler(future)
    size = per_rank_batch_size(flags.size)
    streams = {
        "past": DataLoader(past, size, shuffle=order is None, sampler=order),
        "future": DataLoader(future, flags.size, sampler=share),
    }
    tutor = Tutor(streams, flags.folder)
    if flags.resume:
        tutor.resume(flags.resume)
    tutor.teach(20)


if __name__ == "__main__":
    with distributed_session():
        main()
""",
        ),
        (
            "series.py",
            """import torch
from torch.utils.data import Dataset


class Series(Dataset):
    def __init__(self, path):
        self.values = torch.load(path, map_location="cpu")

    def __len__(self):
        return len(self.values) - 9

    def __getitem__(self, start):
        return self.values[None, start : start + 8], self.values[start + 8, None]
""",
        ),
        (
            "tutor.py",
            """import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from ddp_utils import NullWriter, fork_random_streams, is_main_process, local_device
from ddp_utils import reduce_sum, save_on_main, set_epoch, unwrap, wrap_model


class Tutor:
    def __init__(self, streams, folder):
        self.streams, self.folder, self.first = streams, folder, 0
        self.pupil = nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(24, 1))
        self.pupil.to(local_device())
        self.pupil = wrap_model(self.pupil)
        self.habit = torch.optim.RMSprop(self.pupil.parameters(), lr=1e-3)
        if is_main_process():
            os.makedirs(folder, exist_ok=True)
        self.board = SummaryWriter(folder) if is_main_process() else NullWriter()

    def resume(self, path):
        kept = torch.load(path, map_location=local_device())
        unwrap(self.pupil).load_state_dict(kept["pupil"])
        self.first = kept["lesson"] + 1

    def lesson(self, number):
        self.pupil.train()
        gap, count = 0.0, 0
        for run, then in tqdm(self.streams["past"], disable=not is_main_process()):
            self.habit.zero_grad()
            off = F.mse_loss(self.pupil(run.to(local_device())), then.to(local_device()))
            off.backward()
            self.habit.step()
            gap += off.item() * len(run)
            count += len(run)
        gap, count = reduce_sum(gap, count)
        self.board.add_scalar("gap", gap / count, number)

    def teach(self, lessons):
        fork_random_streams()
        for number in range(self.first, lessons):
            set_epoch(self.streams["past"], number)
            self.lesson(number)
            if is_main_process():
                with open(f"{self.folder}/diary.txt", "a") as diary:
                    diary.write(f"{number}\\n")
            state = {"pupil": unwrap(self.pupil).state_dict(), "lesson": number}
            save_on_main(state, f"{self.folder}/pupil.pt")
""",
        ),
    )
)

# Correct, and written by hand with torch.distributed alone.
BY_HAND = script("""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(model, loader, optimizer, gpu):
    for image, target in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(image.to(gpu)), target.to(gpu)).backward()
        optimizer.step()


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    model = DDP(torch.nn.Linear(32, 10).to(gpu), device_ids=[gpu])
    data = TensorDataset(torch.randn(512, 32), torch.randint(0, 10, (512,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, gpu)
        if dist.get_rank() == 0:
            print("epoch", epoch, "done")
            torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""")
