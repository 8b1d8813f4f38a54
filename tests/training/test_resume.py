"""Resuming on ranks goes on as if nothing had happened: seed 003's "restart exactly where it left
off", with model, optimizer, scheduler, scaler, counters, random streams and place in the data.

Each program is written as people write them for one process; the original resumes exactly, which
is shown first of all, so that it can be asked of the ranks. What a run did is seen from outside.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpify.verify.recording import Fetch, Job, RunRecord
from tests.projects import migrated, put
from tests.training import judges
from tests.training.runs import on_ranks, one_process, side_by_side

pytestmark = [pytest.mark.training, pytest.mark.spread]


# Checkpoints at epoch ends, with the random streams; dropout, and augmentation by all of them.
AT_EPOCH_ENDS = """
import argparse
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rings(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(3)
        angle = torch.rand(n, generator=g) * 6.28
        self.y = torch.randint(0, 2, (n,), generator=g)
        radius = 1.0 + self.y
        self.x = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i] + 0.1 * torch.randn(2)
        if random.random() < 0.5:
            x = -x
        return x * float(np.random.uniform(0.9, 1.1)), self.y[i]


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def save_checkpoint(path, model, optimizer, scheduler, epoch, best_loss):
    torch.save({
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "best_loss": best_loss,
        "torch_rng": torch.get_rng_state(),
        "numpy_rng": np.random.get_state(),
        "python_rng": random.getstate(),
    }, path)


def load_checkpoint(path, model, optimizer, scheduler, device):
    ckpt = torch.load(path, map_location=device, weights_only=False)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    scheduler.load_state_dict(ckpt["scheduler"])
    torch.set_rng_state(ckpt["torch_rng"].cpu())
    np.random.set_state(ckpt["numpy_rng"])
    random.setstate(ckpt["python_rng"])
    return ckpt["epoch"] + 1, ckpt["best_loss"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()

    set_seed(7)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Rings(), batch_size=args.batch_size, shuffle=True)
    model = nn.Sequential(
        nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2)
    ).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    start_epoch, best_loss = 0, float("inf")
    if args.resume:
        start_epoch, best_loss = load_checkpoint(args.resume, model, optimizer, scheduler, device)
        print(f"resumed from {args.resume} at epoch {start_epoch} (best {best_loss:.6f})")

    os.makedirs("ckpt", exist_ok=True)
    for epoch in range(start_epoch, args.epochs):
        model.train()
        total, count = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * x.size(0)
            count += x.size(0)
        scheduler.step()
        best_loss = min(best_loss, total / count)
        print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]:.6f} loss {total / count:.6f}")
        save_checkpoint(f"ckpt/epoch_{epoch}.pt", model, optimizer, scheduler, epoch, best_loss)
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
"""

# Every few steps, in the middle of an epoch, of which the batches that were seen are passed over;
# mixed precision, and a rate that changes at each step.
IN_AN_EPOCH = """
import argparse
import os

import torch
from torch import nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--save-every", type=int, default=4)
parser.add_argument("--resume", type=str, default=None)
parser.add_argument("--seed", type=int, default=1)


def make_data(n=96):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 8, generator=g)
    y = (x[:, :4].sum(1) > x[:, 4:].sum(1)).long()
    return TensorDataset(x, y)


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    loader = DataLoader(make_data(), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, total_steps=args.epochs * len(loader))
    scaler = GradScaler(device.type, init_scale=1024.0, growth_interval=5)
    criterion = nn.CrossEntropyLoss()

    start_epoch, start_step, global_step = 0, 0, 0
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        scaler.load_state_dict(state["scaler"])
        start_epoch = state["epoch"]
        start_step = state["step_in_epoch"]
        global_step = state["global_step"]
        print(f"=> resumed at epoch {start_epoch}, step {start_step} (global {global_step})")

    os.makedirs("ckpt", exist_ok=True)
    for epoch in range(start_epoch, args.epochs):
        torch.manual_seed(args.seed + epoch)      # same shuffle when the epoch is resumed
        for i, (x, y) in enumerate(loader):
            if epoch == start_epoch and i < start_step:
                continue                          # already seen before the interruption
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad(set_to_none=True)
            with autocast(device.type, dtype=torch.bfloat16):
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            global_step += 1
            print(f"[{global_step}] epoch {epoch} step {i} loss {loss.item():.6f}"
                  f" lr {scheduler.get_last_lr()[0]:.8f} scale {scaler.get_scale():g}")
            if global_step % args.save_every == 0:
                torch.save({
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "scaler": scaler.state_dict(),
                    "epoch": epoch,
                    "step_in_epoch": i + 1,
                    "global_step": global_step,
                }, f"ckpt/step_{global_step}.pt")
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
"""

# In the middle of an epoch, with the random streams, which are restored where training goes on.
SLICED = """
import argparse
import itertools
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def rng_state():
    return {"torch": torch.get_rng_state(), "numpy": np.random.get_state(),
            "python": random.getstate()}


def set_rng_state(state):
    torch.set_rng_state(state["torch"].cpu())
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--resume", default="")
    args = p.parse_args()

    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    x = torch.randn(96, 8)
    y = (x[:, :4].sum(1) > x[:, 4:].sum(1)).long()
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(args.dropout), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator()
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, generator=generator)

    first, done, saved = 0, 0, None
    if args.resume:
        saved = torch.load(args.resume, weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, done = saved["epoch"], saved["step_in_epoch"]
        print(f"resuming epoch {first} after {done} batches")

    os.makedirs("ckpt", exist_ok=True)
    for epoch in range(first, args.epochs):
        generator.manual_seed(epoch)
        batches = itertools.islice(loader, done, None)
        if saved is not None:
            set_rng_state(saved["rng"])
            saved = None
        for xb, yb in batches:
            loss = criterion(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            print(f"epoch {epoch} batch {done} loss {loss.item():.6f}")
            if done == 2:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "epoch": epoch, "step_in_epoch": done, "rng": rng_state()},
                           f"ckpt/epoch_{epoch}_batch_2.pt")
        done = 0
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
"""
HEAD = "    for epoch in range(first, args.epochs):\n"
COUNTED_BY_HAND = (
    (HEAD, "    epoch = first\n    while epoch < args.epochs:\n"),
    ("        done = 0\n    torch", "        done = 0\n        epoch += 1\n    torch"),
)
COUNTED_BEFORE = (
    COUNTED_BY_HAND[0],
    ("        done = 0\n    torch", "        epoch += 1\n        done = 0\n    torch"),
)
FURTHER = ((HEAD, "    for n in range(args.epochs - first):\n        epoch = first + n\n"),)


@dataclass(frozen=True)
class Program:
    """``checkpoint`` is written after ``saved`` steps; ``steps`` are those of the whole run."""

    text: str
    checkpoint: str
    saved: int
    steps: int
    arguments: tuple[str, ...] = ()

    def at(self, folder: Path) -> Path:
        """As its author wrote it."""
        return put({"train.py": self.text}, folder)

    def migrated(self, folder: Path) -> Path:
        migrated(self.at(folder) / "train.py")
        return folder

    def argv(self, *extra: str) -> list[str]:
        return ["train.py", *self.arguments, *extra]

    @property
    def resuming(self) -> list[str]:
        return self.argv(f"--resume=ckpt/{self.checkpoint}")

    def altered(self, *replacements: tuple[str, str], arguments: tuple[str, ...] = ()) -> Program:
        text = self.text
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new)
        return replace(self, text=text, arguments=arguments)


ENDS = Program(AT_EPOCH_ENDS, "epoch_1.pt", saved=12, steps=24)
MIDDLE = Program(IN_AN_EPOCH, "step_8.pt", saved=8, steps=18)
SLICES = Program(SLICED, "epoch_1_batch_2.pt", saved=8, steps=18)


@dataclass(frozen=True)
class Resumed:
    """A run in one go, and the rest of it from a checkpoint in a tree that has only that."""

    program: Program
    whole: Job
    rest: Job

    def lines(self, job: Job) -> list[str]:
        """Those of the steps: without what is said of resuming."""
        said = job.runs[0].stdout.splitlines()
        return [line for line in said if "resum" not in line]

    def goes_on(self, streams: bool = True) -> None:
        """Each rank's parameters, rates, samples and streams are those of the run in one go."""
        for whole, rest in zip(self.whole.runs, self.rest.runs, strict=True):
            assert len(whole.steps) == self.program.steps
            left = whole.steps[self.program.saved :]
            assert [s.learning_rates for s in rest.steps] == [s.learning_rates for s in left]
            assert trained_on(rest) == trained_on(whole)[self.program.saved :]
            judges.same_bits(replace(whole, steps=left), rest)
            assert not streams or [s.random for s in rest.steps] == [s.random for s in left]
        assert len(self.lines(self.rest)) > 1
        assert self.lines(self.whole)[-len(self.lines(self.rest)) :] == self.lines(self.rest)

    def ranks_agree(self) -> None:
        """Where the resumed run begins, and after each of its steps."""
        begun = [run.optimizers[0].initial_digests for run in self.rest.runs]
        assert begun.count(begun[0]) == len(begun)
        trails = [[step.digests for step in run.steps] for run in self.rest.runs]
        assert trails.count(trails[0]) == len(trails)


def trained_on(run: RunRecord) -> list[tuple[int | str, ...]]:
    """The samples of each step; the last batches before it, for others were passed over."""
    batches = {event.steps: event.samples for event in run.events if isinstance(event, Fetch)}
    return [batches[number] for number in range(len(run.steps))]


@dataclass
class Bench:
    """Runs programs in folders of their own, on ranks; 0 is plain python."""

    folder: Path
    runs: int = field(default=0)

    def run(self, tree: Path, argv: list[str], ranks: int, *observe: str) -> Job:
        self.runs += 1
        out = self.folder / f"observed-{self.runs}"
        if ranks:
            job = on_ranks(tree, argv, ranks, out, *observe)
        else:
            job = one_process(tree, argv, out, *observe)
        assert job.finished, "\n".join(run.stderr for run in job.runs)
        return job

    def resumed(self, program: Program, ranks: int, *, original: bool = False) -> Resumed:
        """The whole run, then the rest of it where only the one checkpoint is."""
        make = program.at if original else program.migrated
        name = f"{'original' if original else 'migrated'}-{ranks}"
        tree, other = make(self.folder / name), make(self.folder / f"{name}-resumed")
        whole = self.run(tree, program.argv(), ranks)
        take(tree, other, program)
        return Resumed(program, whole, self.run(other, program.resuming, ranks))


def take(source: Path, into: Path, program: Program) -> None:
    (into / "ckpt").mkdir()
    shutil.copy(source / "ckpt" / program.checkpoint, into / "ckpt")


def same_checkpoints(one: Path, other: Path) -> None:
    """Every checkpoint of the first tree that the second has, too, and the last weights."""
    names = [path.relative_to(one) for path in sorted(one.glob("ckpt/*.pt"))]
    shared = [name for name in [*names, Path("final.pt")] if (other / name).exists()]
    assert len(shared) > 1
    for name in shared:
        pair = [torch.load(tree / name, weights_only=False) for tree in (one, other)]
        judges.same_content(plain(pair[0]), plain(pair[1]), str(name))


def plain(state: Any) -> Any:
    """NumPy's arrays cannot be compared as one; the streams of numpy hold one."""
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [plain(value) for value in state]
    return state.tolist() if hasattr(state, "tolist") and not torch.is_tensor(state) else state


PROGRAMS = [
    pytest.param(ENDS, id="at-epoch-ends"),
    pytest.param(MIDDLE, id="in-an-epoch"),
    pytest.param(SLICES, id="sliced", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_process_is_the_original_to_the_last_bit(program: Program, tmp_path: Path) -> None:
    """In one go, and resumed from what the original wrote; which resumes exactly itself."""
    bench = Bench(tmp_path)
    original, found = side_by_side(
        lambda: bench.resumed(program, 0, original=True),
        lambda: Bench(tmp_path / "too").resumed(program, 0),
    )
    original.goes_on()
    for one, other in ((original.whole, found.whole), (original.rest, found.rest)):
        judges.same_bits(one.runs[0], other.runs[0])
        assert one.runs[0].stdout == other.runs[0].stdout
    for name in ("0", "0-resumed"):
        same_checkpoints(tmp_path / f"original-{name}", tmp_path / "too" / f"migrated-{name}")


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_ranks_go_on_as_if_not_interrupted(program: Program, tmp_path: Path) -> None:
    resumed = Bench(tmp_path).resumed(program, 2)
    resumed.goes_on(streams=program is not SLICES)  # of which nothing draws, and one test is below
    resumed.ranks_agree()
    same_checkpoints(tmp_path / "migrated-2", tmp_path / "migrated-2-resumed")
    assert resumed.rest.runs[1].stdout == ""
    assert "resum" in resumed.rest.runs[0].stdout


def test_a_job_that_ended_after_its_checkpoint_loses_what_came_later(tmp_path: Path) -> None:
    """Stopped two steps after it was written, and resumed where the files of the first run are."""
    bench, tree = Bench(tmp_path), MIDDLE.migrated(tmp_path / "ranks")
    broken = bench.run(tree, MIDDLE.argv(), 2, "--steps=10")
    assert [len(run.steps) for run in broken.runs] == [10, 10]
    rest = bench.run(tree, MIDDLE.resuming, 2)
    for run, before in zip(rest.runs, broken.runs, strict=True):
        assert len(run.steps) == MIDDLE.steps - MIDDLE.saved
        assert run.optimizers[0].initial_digests == before.steps[MIDDLE.saved - 1].digests
        assert [s.digests for s in run.steps[:2]] == [s.digests for s in before.steps[-2:]]


@pytest.mark.thorough
@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 2), (2, 4)])
def test_another_number_of_ranks_goes_on_at_an_epoch_end(
    before: int, after: int, tmp_path: Path
) -> None:
    """With the state as it was saved, the rates, and each sample once in each epoch."""
    bench = Bench(tmp_path)
    tree, other = (ENDS.migrated(tmp_path / name) for name in ("before", "after"))
    whole = bench.run(tree, ENDS.argv(), before)
    take(tree, other, ENDS)
    rest = bench.run(other, ENDS.resuming, after)
    saved = whole.runs[0].steps[ENDS.saved - 1].digests
    rates = [step.learning_rates for step in whole.runs[0].steps[ENDS.saved :]]
    for run in rest.runs:
        assert run.optimizers[0].initial_digests == saved
        assert [step.learning_rates for step in run.steps] == rates
    epochs = [sorted(of_epoch(rest, passed)) for passed in (0, 1)]
    assert epochs == [list(range(96))] * 2


def of_epoch(job: Job, passed: int) -> list[Any]:
    events = [event for run in job.runs for event in run.events if isinstance(event, Fetch)]
    return [sample for event in events if event.passed == passed for sample in event.samples]


@pytest.mark.thorough
def test_more_ranks_go_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """DistributedSampler's order is the same on two and on four: none is seen twice."""
    bench = Bench(tmp_path)
    tree, other = (MIDDLE.migrated(tmp_path / name) for name in ("two", "four"))
    whole = bench.run(tree, MIDDLE.argv(), 2)
    take(tree, other, MIDDLE)
    rest = bench.run(other, MIDDLE.resuming, 4)
    assert across(rest) == across(whole)[MIDDLE.saved :]


def across(job: Job) -> list[set[int | str]]:
    """The samples of each step, of all ranks."""
    return [set().union(*step) for step in zip(*map(trained_on, job.runs), strict=True)]


@pytest.mark.parametrize(
    "replacements",
    [
        pytest.param(COUNTED_BY_HAND, id="while", marks=pytest.mark.thorough),
        pytest.param(COUNTED_BEFORE, id="not-last-in-while"),
        pytest.param(FURTHER, id="further", marks=pytest.mark.thorough),
    ],
)
def test_samples_of_epochs_that_no_range_counts(
    replacements: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    """``while epoch < args.epochs`` from the checkpoint's epoch on shuffles by that epoch."""
    resumed = Bench(tmp_path).resumed(SLICES.altered(*replacements), 2)
    rest, whole = (trained_on(job.runs[0]) for job in (resumed.rest, resumed.whole))
    assert rest == whole[SLICES.saved :]


def test_random_streams_of_every_rank_go_on_in_an_epoch(tmp_path: Path) -> None:
    """Dropout draws: rank 1 has rank 0's stream from the checkpoint on, until the next epoch."""
    resumed = Bench(tmp_path).resumed(SLICES.altered(arguments=("--dropout=0.2",)), 2)
    masks = [run.steps[0].random["torch"] for run in resumed.rest.runs]
    assert masks[0] != masks[1]
    resumed.goes_on()


def test_ranks_draw_apart_where_each_epoch_is_seeded(tmp_path: Path) -> None:
    """``torch.manual_seed(args.seed + epoch)`` undoes what begin_epoch did: equal dropout masks."""
    program = MIDDLE.altered(("nn.ReLU(),", "nn.ReLU(), nn.Dropout(0.2),"))
    job = Bench(tmp_path).run(program.migrated(tmp_path / "ranks"), program.argv("--epochs=1"), 2)
    first, second = ([step.random["torch"] for step in run.steps] for run in job.runs)
    assert all(one != other for one, other in zip(first, second, strict=True))
