"""What a training step costs after `ddpify migrate`, next to DDP by hand and to Accelerate.

    python -m benchmarks.step [--accelerate PYTHON] [--rounds N] [--epochs N]

Two Gloo processes on the CPU, one thread each, train a small CNN on scikit-learn's digits; once
with a step per batch, once with a step per four of them. A round starts each script once, so that
all ratios are of numbers taken side by side; `by hand, again` is the noise. No script times itself:
a hook that every process gets notes wall-clock and CPU time after each step of the optimizer.
PYTHON has accelerate and the torch of this interpreter. What it said last is in step.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support.torchrun import EXIT_RACE, JobTimeout, finish, start

RANKS, SAMPLES, BATCH, ACCUMULATED = 2, 1536, 64, 4  # as the scripts below have it
TIMEOUT = 600  # seconds for one run of a script
MIGRATED, BY_HAND, AGAIN, ACCELERATE = "migrated", "by hand", "by hand, again", "Accelerate"

# Every process finds it as sitecustomize. The agent of torchrun has no rank and trains nothing.
_HOOK = """
import atexit, json, os, time
if "RANK" in os.environ and "STEP_TIMES" in os.environ:
    from torch.optim.optimizer import register_optimizer_step_post_hook
    times = []
    register_optimizer_step_post_hook(
        lambda *_: times.append((time.perf_counter(), time.process_time()))
    )
    @atexit.register
    def write():
        with open(os.path.join(os.environ["STEP_TIMES"], os.environ["RANK"] + ".json"), "w") as f:
            json.dump(times, f)
"""
_DIGITS = """
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128), nn.ReLU(),
        nn.Linear(128, 10),
    )


def build_datasets():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train_set = TensorDataset(images[:1536], labels[:1536])
    return train_set, TensorDataset(images[1536:], labels[1536:])
"""
_ORIGINAL = """
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from digits import build_datasets, build_model


@torch.no_grad()
def evaluate(model, loader, criterion, device):
    model.eval()
    total_loss, correct, total = 0.0, 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        total_loss += criterion(outputs, labels).item() * labels.size(0)
        correct += (outputs.argmax(dim=1) == labels).sum().item()
        total += labels.size(0)
    return total_loss / total, 100 * correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = build_datasets()
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    model = build_model().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        model.train()
        running_loss, correct, total = 0.0, 0, 0
<loop>
            running_loss += loss.item() * labels.size(0)
            correct += (outputs.argmax(dim=1) == labels).sum().item()
            total += labels.size(0)
        val_loss, val_acc = evaluate(model, val_loader, criterion, device)
        print(f"epoch {epoch + 1}: loss {running_loss / total:.4f} acc {100 * correct / total:.2f} "
              f"val loss {val_loss:.4f} val acc {val_acc:.2f}")

    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
"""
_ORIGINAL_LOOPS = (
    """
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            outputs = model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
""",
    """
        optimizer.zero_grad()
        for i, (images, labels) in enumerate(train_loader):
            images, labels = images.to(device), labels.to(device)
            outputs = model(images)
            loss = criterion(outputs, labels)
            (loss / 4).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
""",
)
_BY_HAND = """
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

from digits import build_datasets, build_model


def summed(*values):
    sums = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(sums)
    return sums.tolist()


@torch.no_grad()
def evaluate(model, loader, criterion, device):
    model.eval()
    total_loss, correct, total = 0.0, 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        total_loss += criterion(outputs, labels).item() * labels.size(0)
        correct += (outputs.argmax(dim=1) == labels).sum().item()
        total += labels.size(0)
    total_loss, correct, total = summed(total_loss, correct, total)
    return total_loss / total, 100 * correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    device = torch.device("cpu")
    train_set, val_set = build_datasets()
    val_set = Subset(val_set, range(rank, len(val_set), ranks))
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // ranks, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    model = DistributedDataParallel(build_model().to(device))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        running_loss, correct, total = 0.0, 0, 0
<loop>
            running_loss += loss.item() * labels.size(0)
            correct += (outputs.argmax(dim=1) == labels).sum().item()
            total += labels.size(0)
        running_loss, correct, total = summed(running_loss, correct, total)
        val_loss, val_acc = evaluate(model, val_loader, criterion, device)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {running_loss / total:.4f} "
                  f"acc {100 * correct / total:.2f} "
                  f"val loss {val_loss:.4f} val acc {val_acc:.2f}")

    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
_BY_HAND_LOOPS = (
    _ORIGINAL_LOOPS[0],
    """
        optimizer.zero_grad()
        for i, (images, labels) in enumerate(train_loader):
            images, labels = images.to(device), labels.to(device)
            last = (i + 1) % 4 == 0
            with nullcontext() if last else model.no_sync():
                outputs = model(images)
                loss = criterion(outputs, labels)
                (loss / 4).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
""",
)
_ACCELERATE = """
import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

from digits import build_datasets, build_model


@torch.no_grad()
def evaluate(accelerator, model, loader, criterion):
    model.eval()
    total_loss, correct, total = 0.0, 0, 0
    for images, labels in loader:
        outputs, labels = accelerator.gather_for_metrics((model(images), labels))
        total_loss += criterion(outputs, labels).item() * labels.size(0)
        correct += (outputs.argmax(dim=1) == labels).sum().item()
        total += labels.size(0)
    return total_loss / total, 100 * correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True<options>)
    torch.manual_seed(0)
    batch_size = args.batch_size // accelerator.num_processes
    train_set, val_set = build_datasets()
    train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    model = build_model()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    model, optimizer, train_loader, val_loader = accelerator.prepare(
        model, optimizer, train_loader, val_loader
    )

    for epoch in range(args.epochs):
        model.train()
        running_loss, correct, total = 0.0, 0, 0
<loop>
            running_loss += loss.item() * labels.size(0)
            correct += (outputs.argmax(dim=1) == labels).sum().item()
            total += labels.size(0)
        sums = torch.tensor([running_loss, correct, total])
        running_loss, correct, total = accelerator.reduce(sums).tolist()
        val_loss, val_acc = evaluate(accelerator, model, val_loader, criterion)
        accelerator.print(
            f"epoch {epoch + 1}: loss {running_loss / total:.4f} acc {100 * correct / total:.2f} "
            f"val loss {val_loss:.4f} val acc {val_acc:.2f}"
        )

    accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
"""
_ACCELERATE_LOOPS = (
    """
        for images, labels in train_loader:
            optimizer.zero_grad()
            outputs = model(images)
            loss = criterion(outputs, labels)
            accelerator.backward(loss)
            optimizer.step()
""",
    """
        for images, labels in train_loader:
            with accelerator.accumulate(model):
                outputs = model(images)
                loss = criterion(outputs, labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
""",
)


@dataclass(frozen=True)
class Cost:
    """One run: milliseconds, as COLUMNS names them, and the last line that the script printed.

    Per step the median of wall-clock time, its fastest tenth (of which other jobs on the machine
    took least) and the median of CPU time, of all threads of a rank; then the median of the
    wall-clock time from an epoch's last step to the first of the next one.
    """

    numbers: tuple[float, ...]
    line: str


COLUMNS = ("step", "fastest tenth", "CPU", "between epochs")


class Failed(Exception):
    """A script did not run, or not as long as it should."""


def original(accumulates: bool) -> str:
    """The script for one process."""
    return _ORIGINAL.replace("\n<loop>\n", _ORIGINAL_LOOPS[accumulates])


def by_hand(accumulates: bool) -> str:
    """The script as an engineer makes it distributed."""
    text = _BY_HAND.replace("\n<loop>\n", _BY_HAND_LOOPS[accumulates])
    imported = "import argparse\n" + "from contextlib import nullcontext\n" * accumulates
    return text.replace("import argparse\n", imported)


def accelerated(accumulates: bool) -> str:
    """The script with Accelerate."""
    text = _ACCELERATE.replace("\n<loop>\n", _ACCELERATE_LOOPS[accumulates])
    return text.replace("<options>", ", gradient_accumulation_steps=4" * accumulates)


def written(folder: Path, name: str, script: str) -> Path:
    """A new project: the script, and what all scripts share."""
    project = folder / re.sub(r"\W+", "-", name)
    project.mkdir()
    (project / "train.py").write_text(script)
    (project / "digits.py").write_text(_DIGITS)
    return project


def migrate(project: Path) -> None:
    """Migrate in place, as a user does. Raises Failed where that is refused."""
    command = [sys.executable, "-m", "ddpify", "migrate", "train.py", "--strategy", "ddp"]
    done = subprocess.run([*command, "--inplace"], cwd=project, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"not migrated:\n{done.stdout}{done.stderr}")


def trained(project: Path, python: str, epochs: int, steps: int) -> Cost:
    """Train for some epochs of `steps` steps. Raises Failed, JobTimeout."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}"]
    command = [python, *launch, "train.py", f"--epochs={epochs}", f"--batch-size={BATCH}"]
    with tempfile.TemporaryDirectory() as times:
        Path(times, "sitecustomize.py").write_text(_HOOK)
        out = _finished(command, project, {"PYTHONPATH": times, "STEP_TIMES": times})
        ranks = [json.loads(Path(times, f"{rank}.json").read_text()) for rank in range(RANKS)]
    if any(len(rank) != epochs * steps for rank in ranks):
        raise Failed(f"{project.name}: {[len(rank) for rank in ranks]} steps, not {epochs * steps}")
    return cost(ranks, steps, out.strip().splitlines()[-1])


def _finished(command: Sequence[str], project: Path, given: dict[str, str]) -> str:
    """What it printed, at the second attempt where torch's Gloo aborted at the end of the first."""
    for _ in range(2):
        job = start(command, project, {**given, "CUDA_VISIBLE_DEVICES": ""})
        out, error = finish(job, TIMEOUT)
        if job.returncode == 0 or EXIT_RACE not in error:
            break
    if job.returncode:
        raise Failed(f"{project.name} ended with {job.returncode}\n{error[-3000:]}")
    return out


def cost(ranks: Sequence[Sequence[tuple[float, float]]], steps: int, line: str) -> Cost:
    """From each rank's seconds of wall-clock and of CPU time after each step; of a step's costs on
    the ranks the mean counts. The first epoch warms up, and what comes between two epochs, an
    evaluation, is not of the steps."""
    wall, cpu = (_gaps(ranks, clock) for clock in (0, 1))
    inner, work = (
        [gap for i, gap in enumerate(gaps, 1) if i > steps and i % steps] for gaps in (wall, cpu)
    )
    medians = [statistics.median(gaps) for gaps in (inner, work, wall[steps - 1 :: steps])]
    return Cost((medians[0], statistics.quantiles(inner, n=10)[0], *medians[1:]), line)


def _gaps(ranks: Sequence[Sequence[tuple[float, float]]], clock: int) -> list[float]:
    """Milliseconds from each step to the next one."""
    gaps = ([later[clock] - sooner[clock] for sooner, later in pairwise(rank)] for rank in ranks)
    return [1000 * statistics.mean(of_ranks) for of_ranks in zip(*gaps, strict=True)]


def measured(
    jobs: dict[str, tuple[Path, str]], options: argparse.Namespace, steps: int
) -> dict[str, list[Cost]]:
    """Each job once per round; each round begins with another one."""
    costs: dict[str, list[Cost]] = {name: [] for name in jobs}
    names = list(jobs)
    for number in range(options.rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            project, python = jobs[name]
            costs[name].append(trained(project, python, options.epochs, steps))
    return costs


def table(costs: dict[str, list[Cost]]) -> str:
    """Medians of the rounds in milliseconds, and what the script printed last."""
    rows = ["| ms | " + " | ".join(COLUMNS) + " | printed last |", "|---" * 6 + "|"]
    for name, held in costs.items():
        numbers = (statistics.median(column) for column in zip(*_numbers(held), strict=True))
        lines = "; ".join(sorted({each.line for each in held}))
        rows.append(f"| {name} | {' | '.join(f'{n:.2f}' for n in numbers)} | {lines} |")
    return "\n".join(rows)


def ratios(costs: dict[str, list[Cost]]) -> str:
    """The medians of the rounds' ratios, with the least and the largest."""
    pairs = [(MIGRATED, BY_HAND), (AGAIN, BY_HAND), (MIGRATED, ACCELERATE), (BY_HAND, ACCELERATE)]
    rows = ["| ratio | " + " | ".join(COLUMNS) + " |", "|---" * 5 + "|"]
    for name, base in (pair for pair in pairs if pair[1] in costs):
        both = zip(*_numbers(costs[name]), strict=True), zip(*_numbers(costs[base]), strict=True)
        cells = (_ratio(own, other) for own, other in zip(*both, strict=True))
        rows.append(f"| {name} / {base} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _numbers(held: Sequence[Cost]) -> list[tuple[float, ...]]:
    return [each.numbers for each in held]


def _ratio(own: Sequence[float], base: Sequence[float]) -> str:
    found = [one / other for one, other in zip(own, base, strict=True)]
    return f"{statistics.median(found):.3f} ({min(found):.3f} to {max(found):.3f})"


def versions(python: str) -> str:
    """The releases of torch and accelerate that an interpreter has. Raises Failed."""
    program = "import accelerate, torch; print('torch', torch.__version__, end=', ');"
    program += "print('accelerate', accelerate.__version__)"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{python} cannot be used:\n{done.stderr[-1000:]}")
    return done.stdout.strip()


def compared(accumulates: bool, options: argparse.Namespace) -> dict[str, list[Cost]]:
    """Write the scripts, migrate the original, train with each."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        migrated = written(folder, MIGRATED, original(accumulates))
        migrate(migrated)
        hand = written(folder, BY_HAND, by_hand(accumulates)), sys.executable
        jobs = {MIGRATED: (migrated, sys.executable), BY_HAND: hand, AGAIN: hand}
        if options.accelerate:
            theirs = written(folder, ACCELERATE, accelerated(accumulates))
            jobs[ACCELERATE] = (theirs, options.accelerate)
        return measured(jobs, options, SAMPLES // BATCH // (ACCUMULATED if accumulates else 1))


def main() -> int:
    """Measure, print; 2 where a script cannot be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--accelerate", metavar="PYTHON", help="an interpreter with accelerate")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8, help="at least 2: the first is left out")
    options = parser.parse_args()
    try:
        there = versions(options.accelerate) if options.accelerate else "left out: no --accelerate"
        print(f"Accelerate: {there}")
        for accumulates in (False, True):
            batches = f"{ACCUMULATED} batches" if accumulates else "one batch"
            print(f"\nA step per {batches} of {BATCH}, on {RANKS} ranks:", flush=True)
            costs = compared(accumulates, options)
            print(f"\n{table(costs)}\n\n{ratios(costs)}", flush=True)
    except (Failed, JobTimeout) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
