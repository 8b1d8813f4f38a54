"""Training projects that are correct under torchrun, each in a style of its own.

No rule reports anything in them, so what a changed line brings up is that line's fault.
"""

from __future__ import annotations

from ddpify.rules.base import Example

# Correct: a script from top to bottom, without functions.
SCRIPT = Example(tuple({"main.py": """import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

from ddp_metrics import reduce_mean
from ddp_utils import (
    begin_epoch,
    cleanup_distributed,
    distributed_sampler,
    fork_random_streams,
    is_main_process,
    per_rank_batch_size,
    save_on_main,
    setup_distributed,
    unwrap,
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
    begin_epoch(feed, n)
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
"""}.items()))

# Correct: functions in three files, a loader factory, a scheduler, evaluation in shares.
PROJECT = Example(
    tuple(
        {
            "main.py": """import argparse

import torch

from ddp_utils import distributed_session, fork_random_streams, is_main_process
from ddp_utils import begin_epoch, save_on_main, unwrap, wrap_model
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
        begin_epoch(learn, lap)
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
            "loops.py": """import torch
import torch.nn.functional as F

from ddp_metrics import reduce_sum


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
            "parts.py": """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ddp_utils import distributed_sampler, evaluation_share, per_rank_batch_size


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
    share = evaluation_share(unseen)
    return (
        DataLoader(
            known, batch_size=per_rank_batch_size(batch), shuffle=order is None, sampler=order
        ),
        DataLoader(unseen, batch_size=100, sampler=share),
    )
""",
        }.items()
    )
)

# Correct: a class that holds the model, loaders in a dict, and all that is written to disk.
TRAINER = Example(
    tuple(
        {
            "main.py": """import argparse

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
            "series.py": """import torch
from torch.utils.data import Dataset


class Series(Dataset):
    def __init__(self, path):
        self.values = torch.load(path, map_location="cpu")

    def __len__(self):
        return len(self.values) - 9

    def __getitem__(self, start):
        return self.values[None, start : start + 8], self.values[start + 8, None]
""",
            "tutor.py": """import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from ddp_utils import NullWriter, fork_random_streams, is_main_process, local_device
from ddp_metrics import reduce_sum
from ddp_utils import begin_epoch, save_on_main, unwrap, without_module_prefix
from ddp_utils import wrap_model


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
        unwrap(self.pupil).load_state_dict(without_module_prefix(kept["pupil"]))
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
            begin_epoch(self.streams["past"], number)
            self.lesson(number)
            if is_main_process():
                with open(f"{self.folder}/diary.txt", "a") as diary:
                    diary.write(f"{number}\\n")
            state = {"pupil": unwrap(self.pupil).state_dict(), "lesson": number}
            save_on_main(state, f"{self.folder}/pupil.pt")
""",
        }.items()
    )
)

# Correct, and written by hand with torch.distributed alone.
BY_HAND = Example(tuple({"main.py": """import os

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
"""}.items()))
