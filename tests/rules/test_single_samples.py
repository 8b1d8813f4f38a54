"""Batches of one sample: a sample for each rank, in windows of as many as before, or a refusal.

That those that are migrated train as one process does is shown in
``tests/training/one_line/data.txt`` (``single_…``) and for the fixture ``ct_volumes``.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.rules.shared.sample_counts import Counter
from ddpify.settings import Settings
from tests.projects import write

PROGRAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 4


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(16, 5), torch.randint(0, 3, (16,)))
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(data, batch_size=1, shuffle=True)
    count = 0
    for epoch in range(2):
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = criterion(model(x), y)
            (loss / STEPS).backward()
            if (i + 1) % STEPS == 0:
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        print(epoch, total / len(loader))


if __name__ == "__main__":
    main()
"""
LOSS = "            loss = criterion(model(x), y)\n"
GOES = "            (loss / STEPS).backward()\n"
ASKS = "            if (i + 1) % STEPS == 0:\n"
ADDS = "            total += loss.item()\n"
ENDS = "        print(epoch, total / len(loader))\n"
FOR = "        for i, (x, y) in enumerate(loader):\n"
OWN = (
    (FOR, "        for x, y in loader:\n"),
    (ASKS, "            if (count + 1) % STEPS == 0:\n"),
    (ADDS, f"{ADDS}            count += 1\n"),
)
FIT = "        count = fit(model, optimizer, criterion, loader, count)\n"
FITS = """\
def fit(model, optimizer, criterion, loader, n):
    for x, y in loader:
        (criterion(model(x), y) / STEPS).backward()
        if (n + 1) % STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
        n += 1
    return n
"""
SMOOTH = """\
class Smooth:
    def __init__(self):
        self.mean = 0.0

    def loss(self, loss):
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        return loss * self.mean


"""
FILLED = """\
SEEN = []


def beside(x):
    SEEN.append(x)
    return torch.stack(SEEN).mean()


"""
SHARE = "per_rank_accumulation(STEPS)"
# What a change makes of the lines that a step and what is shown depend on.
SHORTENED = {
    "as it is": ((), (f"(loss / {SHARE}).backward()", f"if (i + 1) % {SHARE} == 0:")),
    "the default size": (
        ((", batch_size=1", ""),),
        (f"if (i + 1) % {SHARE} == 0:", "DataLoader(data, shuffle=train_sampler is None"),
    ),
    "the last of a window": (
        ((ASKS, "            if i % STEPS == STEPS - 1:\n"),),
        (f"if i % {SHARE} == {SHARE} - 1:",),
    ),
    "counted from 1": (
        ((FOR, FOR.replace("(loader)", "(loader, 1)")), (ASKS, ASKS.replace("(i + 1)", "i"))),
        (f"if i % {SHARE} == 0:",),
    ),
    "or the last batch": (
        ((ASKS, "            if (i + 1) % STEPS == 0 or i + 1 == len(loader):\n"),),
        (f"if (i + 1) % {SHARE} == 0 or",),
    ),
    "a flag": (
        (
            (LOSS, f"            last = (i + 1) % STEPS == 0\n{LOSS}"),
            (ASKS, "            if last:\n"),
        ),
        (f"last = (i + 1) % {SHARE} == 0\n",),
    ),
    "divided before": (
        (
            (LOSS, f"{LOSS}            loss = loss / STEPS\n"),
            (GOES, "            loss.backward()\n"),
        ),
        ("loss = loss / STEPS\n", "(loss * get_world_size()).backward()"),
    ),
    "shown as it was before": (
        (
            (LOSS, f"{LOSS}            loss = loss / STEPS\n"),
            (GOES, "            loss.backward()\n"),
            (ADDS, ADDS.replace("loss.item()", "loss.item() * STEPS")),
        ),
        ("total += loss.item() * STEPS\n",),
    ),
    "not divided": (
        ((GOES, "            loss.backward()\n"),),
        ("(loss * get_world_size()).backward()",),
    ),
    "a count of its own": (
        OWN,
        (
            "if (count + get_world_size()) % STEPS // get_world_size() == 0:",
            "count += get_world_size()\n",
        ),
    ),
    "counted before it is asked": (
        (
            *OWN[:1],
            (GOES, f"{GOES}            count += 1\n"),
            (ASKS, "            if count % STEPS == 0:\n"),
        ),
        ("if count % STEPS // get_world_size() == 0:", "count += get_world_size()\n"),
    ),
    "a mean over all batches": ((), ("total / (len(loader) * get_world_size())",)),
    "a running mean": (
        (
            (
                ADDS,
                f"{ADDS}            if i % 8 == 7:\n" "                print(i, total / (i + 1))\n",
            ),
        ),
        (
            "if (i + 1) * get_world_size() % 8 // get_world_size() == 0:",
            "global_total / ((i + 1) * get_world_size())",
        ),
    ),
    "one sample is shown, as it is at the end": (
        ((ADDS, f"{ADDS}            if i % 8 == 7:\n                print(i, loss.item())\n"),),
        (
            "global_loss = gather_objects(loss.item())[-1]\n",
            "print((i + 1) * get_world_size() - 1, global_loss)",
        ),
    ),
    "or at the beginning": (
        ((ADDS, f"{ADDS}            if i % 8 == 0:\n                print(i, loss.item())\n"),),
        (
            "if i * get_world_size() % 8 // get_world_size() == 0:",
            "print(i * get_world_size(), loss.item())",
        ),
    ),
    "how many there were": (
        ((ENDS, "        print(i + 1)\n"),),
        ("print((i + 1) * get_world_size())",),
    ),
    "steps are counted": (
        (
            ("                optimizer.zero_grad()\n", "                count += 1\n"),
            (ENDS, "        print(count)\n"),
        ),
        ("                count += 1\n", "print(count)"),
    ),
    "a second count": (
        ((ADDS, f"{ADDS}            count += 1\n"), (ENDS, "        print(total / count)\n")),
        ("            count += get_world_size()\n", "print(total / count)"),
    ),
    "a meter": (
        (
            (
                "def main():\n",
                "class Meter:\n    def __init__(self):\n"
                "        self.val = self.sum = self.count = self.avg = 0\n\n"
                "    def update(self, val, n=1):\n        self.val = val\n"
                "        self.sum += val * n\n        self.count += n\n"
                "        self.avg = self.sum / self.count\n\n\ndef main():\n",
            ),
            ("        total = 0.0\n", "        losses = Meter()\n"),
            (
                ADDS,
                "            losses.update(loss.item(), x.size(0))\n            if i % 8 == 7:\n"
                "                print(losses.val, losses.avg)\n",
            ),
            (ENDS, "        print(losses.avg)\n"),
        ),
        (
            "weight=get_world_size() * (get_rank() == get_world_size() - 1)",
            "print(global_losses.val, global_losses.avg)",
            "reduce_meter(losses)\n",
        ),
    ),
    "a count that a dict keeps": (
        (
            *OWN[:2],
            ("        total = 0.0\n", "        seen = {'n': 0}\n"),
            (ADDS, "            seen['n'] += 1\n            count += 1\n"),
            (ENDS, "        print(seen['n'])\n"),
        ),
        ("            seen['n'] += 1\n", "seen = reduce_entries(seen)\n"),
    ),
    "a sample at the beginning, by a count": (
        (
            *OWN[:2],
            (
                ADDS,
                f"{ADDS}            if count % 8 == 0:\n                print(loss.item())\n"
                "            count += 1\n",
            ),
        ),
        ("print(loss.item())\n",),
    ),
    "a sum of sizes": (
        (
            (ADDS, "            total += x.size(1)\n"),
            (ENDS, "        print(total / len(data))\n"),
        ),
        ("            total += x.size(1)\n", "total = reduce_sum(total)\n"),
    ),
    "a sample without a label": (
        ((GOES, f"            if y.item() != 2:\n    {GOES}"),),
        (
            "with gradient_sync(model, sync=False):",
            "average_gradients(model)\n                optimizer.step()\n",
        ),
    ),
}
REFUSED = {
    "no window": (
        (
            (ASKS, "            optimizer.step()\n"),
            ("                optimizer.step()\n                optimizer.zero_grad()\n", ""),
            (GOES, "            optimizer.zero_grad()\n            loss.backward()\n"),
        ),
        "each sample is a step of its own; a batch of one sample cannot be divided",
    ),
    "a window that is moved": (
        ((ASKS, "            if i % STEPS == 0:\n"),),
        "the first window is shorter than the others",
    ),
    "a schedule of rounds": (
        (
            ("    count = 0\n", "    plan = torch.optim.lr_scheduler.StepLR(optimizer, 8)\n"),
            (ADDS, f"{ADDS}            plan.step()\n"),
        ),
        "a schedule goes on in each round",
    ),
    "batch norm": (
        (("nn.ReLU()", "nn.BatchNorm1d(8)"),),
        "batch norm takes its statistics from each batch of one",
    ),
    "the rate by the round": (
        ((LOSS, f"            optimizer.param_groups[0]['lr'] = 0.1 / (i + 1)\n{LOSS}"),),
        "`i + 1` would be of fewer rounds",
    ),
    "an end by the round": (
        ((LOSS, f"            if i > 7:\n                break\n{LOSS}"),),
        "`i` would be of fewer rounds",
    ),
    "a weight by the round": (
        ((LOSS, f"{LOSS}            loss = loss * min(1.0, i / 8)\n"),),
        "`i` would be of fewer rounds",
    ),
    "a mean over an interval": (
        (
            (
                ADDS,
                f"{ADDS}            if i % 8 == 7:\n                print(total / 8)\n"
                "                total = 0.0\n",
            ),
        ),
        "`total / 8` would be of more samples",
    ),
    "a sample that decides whether there is a step": (
        ((LOSS, f"            if y.item() == 2:\n                continue\n{LOSS}"),),
        "each rank would decide this from its own samples",
    ),
    "a loss that goes on": (
        (
            (LOSS, "            loss = criterion(model(x), y) + 0.1 * old\n"),
            (ADDS, f"{ADDS}            old = loss.detach()\n"),
            ("    count = 0\n", "    old = 0.0\n"),
        ),
        "the loss goes on from what the batch before has left",
    ),
    "a bank of samples": (
        (
            (LOSS, f"{LOSS}            loss = loss + 0.1 * torch.stack(bank or [x]).mean()\n"),
            (ADDS, f"{ADDS}            bank.append(x)\n"),
            ("    count = 0\n", "    bank = []\n"),
        ),
        "the loss is of what `bank` has of batches before",
    ),
    "windows that a condition counts": (
        (
            (ADDS, f"{ADDS}            count += (i + 1) % STEPS == 0\n"),
            (ENDS, "        print(total / count)\n"),
        ),
        "`count += (i + 1) % STEPS == 0` would be of fewer rounds",
    ),
    "a bank that a function fills": (
        (
            (LOSS, f"{LOSS}            loss = loss + 0.1 * torch.stack(bank or [x]).mean()\n"),
            (ADDS, f"{ADDS}            keep(bank, x)\n"),
            ("    count = 0\n", "    bank = []\n"),
            ("def main():\n", "def keep(bank, x):\n    bank.append(x)\n\n\ndef main():\n"),
        ),
        "the loss is of what `bank` has of batches before",
    ),
    "a rate that a function sets and prints": (
        (
            (LOSS, f"            slow(optimizer, i)\n{LOSS}"),
            (
                "def main():\n",
                "def slow(optimizer, i):\n    for group in optimizer.param_groups:\n"
                "        group['lr'] = 0.1 / (i + 1)\n    print(i)\n\n\ndef main():\n",
            ),
        ),
        "`i` would be of fewer rounds",
    ),
    "lengths of several loaders": (
        (
            (
                "    count = 0\n",
                "    other = DataLoader(data, batch_size=4)\n"
                "    for one in (loader, other):\n        print(len(one))\n",
            ),
        ),
        "would be of fewer rounds",
    ),
    "a count that is written out": (
        (
            (ADDS, f"{ADDS}            count = count + 1\n"),
            (ENDS, "        print(count)\n"),
        ),
        "`count = count + 1` would be of fewer rounds",
    ),
    "a count that a caller begins elsewhere": (
        (
            (PROGRAM[PROGRAM.index(FOR) : PROGRAM.index("\n\nif __name__")], FIT),
            ("    count = 0\n", "    count = 3\n"),
            ("STEPS = 4\n", f"STEPS = 4\nn = 0\n\n\n{FITS}"),
        ),
        "`n` is not known to begin at 0",
    ),
    "a mean that a loss keeps": (
        (
            ("def main():\n", f"{SMOOTH}def main():\n"),
            ("    count = 0\n", "    smooth = Smooth()\n"),
            (LOSS, "            loss = smooth.loss(criterion(model(x), y))\n"),
        ),
        "what makes the loss keeps something of this batch for others (main.py:13)",
    ),
    "a list that a loss fills": (
        (
            ("def main():\n", f"{FILLED}def main():\n"),
            (LOSS, f"{LOSS}            loss = loss + beside(x)\n"),
        ),
        "what makes the loss keeps something of this batch for others",
    ),
    "a count of something else": (
        (*OWN[:2], (ADDS, f"{ADDS}            if y.item() == 1:\n                count += 1\n")),
        "",
    ),
    "a count that begins elsewhere": (
        (*OWN, ("    count = 0\n", "    count = 3\n")),
        "`count` is not known to begin at 0",
    ),
}


@pytest.mark.parametrize(("changes", "lines"), SHORTENED.values(), ids=SHORTENED)
def test_windows_are_of_as_many_samples(
    changes: tuple[tuple[str, str], ...], lines: tuple[str, ...], tmp_path: Path
) -> None:
    script = put_program(tmp_path, changes)
    outcome = migrate([script], Settings())
    assert not outcome.refusals, outcome.refusals
    write(outcome.changes, tmp_path)
    text = script.read_text()
    for line in lines:
        assert line in text, text
    again = migrate([script], Settings())
    assert (again.changes, again.refusals, again.findings) == ((), (), ())


@pytest.mark.parametrize(("changes", "why"), REFUSED.values(), ids=REFUSED)
def test_or_it_is_said_why_not(
    changes: tuple[tuple[str, str], ...], why: str, tmp_path: Path
) -> None:
    outcome = migrate([put_program(tmp_path, changes)], Settings())
    assert not outcome.changes
    assert any(why in refusal.message for refusal in outcome.refusals), outcome.refusals


@pytest.mark.parametrize("size", ["ONE", "args.size"])
def test_a_batch_that_is_one_as_it_stands_is_said(size: str, tmp_path: Path) -> None:
    options = (
        "    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--size", type=int, default=1)\n'
        "    args = parser.parse_args()\n"
    )
    given = (
        ("import torch\n", "import argparse\n\nimport torch\n"),
        ("STEPS = 4\n", "STEPS = 4\nONE = 1\n"),
        ("def main():\n", f"def main():\n{options}"),
        ("batch_size=1", f"batch_size={size}"),
    )
    outcome = migrate([put_program(tmp_path, given)], Settings())
    assert not outcome.refusals
    (note,) = outcome.notes
    assert note.message.startswith("the batch size is 1 unless another one is given")
    kept = migrate([put_program(tmp_path, given)], Settings(batch_size="per-rank"))
    assert not kept.notes


RUNNING = (
    ADDS,
    f"{ADDS}            if i % 8 == 7:\n                print(total / (i + 1))\n",
)


def test_one_on_each_rank_leaves_means_of_all(tmp_path: Path) -> None:
    script = put_program(tmp_path, (RUNNING,))
    settings = Settings(batch_size="per-rank")
    outcome = migrate([script], settings)
    assert not outcome.refusals
    write(outcome.changes, tmp_path)
    text = script.read_text()
    assert "sync=(i + 1) % STEPS == 0" in text
    assert "global_total / ((i + 1) * get_world_size())" in text
    assert "total / (len(loader) * get_world_size())" in text
    script.write_text(PROGRAM.replace(ENDS, ENDS.replace("len(loader)", "16")))
    outcome = migrate([script], settings)
    assert any("`total / 16` would be of more samples" in r.message for r in outcome.refusals)


def put_program(folder: Path, changes: tuple[tuple[str, str], ...]) -> Path:
    text = PROGRAM
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    script = folder / "main.py"
    script.write_text(text)
    return script


INDEX, FROM_1, COUNT = Counter("i", True), Counter("i", True, 1), Counter("n", False)


@pytest.mark.parametrize(
    ("counter", "rounds", "samples"),
    [
        (INDEX, "(i + 1) % k == 0", "(i + 1) * get_world_size() % k // get_world_size() == 0"),
        (INDEX, "i % 50 == 0", "i * get_world_size() % 50 // get_world_size() == 0"),
        (INDEX, "i % 50 == 49", "(i + 1) * get_world_size() % 50 // get_world_size() == 0"),
        (INDEX, "not (1 + i) % 50", "not (1 + i) * get_world_size() % 50 // get_world_size()"),
        (INDEX, "(i + 1) % 50 != 0", "(i + 1) * get_world_size() % 50 // get_world_size() != 0"),
        (FROM_1, "i % 50 == 0", "i * get_world_size() % 50 // get_world_size() == 0"),
        (FROM_1, "i - 1", "(i - 1) * get_world_size()"),
        (COUNT, "(n + 1) % 50 == 0", "(n + get_world_size()) % 50 // get_world_size() == 0"),
        (COUNT, "n % 50 == 50 - 1", "(n + get_world_size()) % 50 // get_world_size() == 0"),
        (COUNT, "x / (n + 1)", "x / (n + get_world_size())"),
        (COUNT, "n % 50 == 0", "n % 50 // get_world_size() == 0"),
    ],
)
def test_rounds_are_said_in_samples(counter: Counter, rounds: str, samples: str) -> None:
    found = counter.converted(ast.parse(rounds, mode="eval").body)
    assert found == samples


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_what_is_done_every_so_many_samples_is_done_as_often(ranks: int) -> None:
    asked = INDEX.converted(ast.parse("(i + 1) % 50 == 0", mode="eval").body)
    world = {"get_world_size": lambda: ranks}
    rounds = [i for i in range(1200 // ranks) if eval(asked, {**world, "i": i})]
    assert len(rounds) == 24
    assert all((i + 1) * ranks - 50 * n < ranks for n, i in enumerate(rounds, 1))


@pytest.mark.parametrize("rounds", ["i + 2", "i - 1", "2 * i % 50 == 0"])
def test_what_is_no_number_of_samples_is_not_said(rounds: str) -> None:
    with pytest.raises(ValueError, match="number of"):
        INDEX.converted(ast.parse(rounds, mode="eval").body)
