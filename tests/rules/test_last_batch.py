"""Where a short last batch is dealt in unequal parts, and where parts stay equal.

That the first train as one process does is shown in ``tests/training/one_line/data.txt``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings
from tests.projects import migrated
from tests.training.one_line.reader import TABLES

HERE = Path(__file__).parents[1] / "training" / "one_line"
PROGRAM = (HERE / next(iter(TABLES))).read_text()
FOR = "        for i, (x, y) in enumerate(loader):\n"
ADDS = "            total += loss.item()\n"
LOSS = "            loss = criterion(out, y)\n"
GOES = "            loss.backward()\n"
MADE = "loader = DataLoader(data, batch_size=args.batch_size, shuffle=False)\n"
BAR = "        from tqdm import tqdm\n        bar = tqdm(loader)\n"
KEPT = """class Kept:
    def __init__(self):
        self.loss = 0.0

    def update(self, loss):
        self.loss += loss


"""
UNEQUAL = {
    "as it is": (FOR, FOR),
    "uncounted": (FOR, "        for x, y in loader:\n"),
    "counted from 1": (FOR, "        for i, (x, y) in enumerate(loader, 1):\n"),
    "a bar with a name": (FOR, f"{BAR}{FOR.replace('(loader)', '(bar)')}"),
    "a bar over numbers": (
        FOR,
        BAR.replace("(loader)", "(enumerate(loader))") + FOR.replace("enumerate(loader)", "bar"),
    ),
    "a mean of a batch is shown": (ADDS, f"{ADDS}            print(out.mean().item())\n"),
    "the loss grows first": (GOES, f"            loss += 0.1 * out.pow(2).mean()\n{GOES}"),
    "a last batch may be dropped": (MADE, MADE.replace("False)", "False, drop_last=args.lr > 9)")),
}
EQUAL = {
    "its size decides": (LOSS, f"{LOSS}            if len(x) < 5:\n                continue\n"),
    "a running mean": (ADDS, "            total += (loss.item() - total) / (i + 1)\n"),
    "a mean that decays": (ADDS, "            total = 0.9 * total + 0.1 * loss.item()\n"),
    "the last one is read": (
        ADDS + "        acc",
        f"{ADDS}        print(loss.item())\n        acc",
    ),
    "batches of another loader": (
        LOSS,
        f"{LOSS}            z, w = next(iter(DataLoader(data, 8, shuffle=True)))\n"
        "            loss = loss + criterion(model(z), w)\n",
    ),
    "by hand": (
        FOR,
        "        batches = iter(loader)\n        for i in range(len(loader)):\n"
        "            x, y = next(batches)\n",
    ),
    "another loader has the name": (
        FOR,
        f"{BAR}        loader = list(loader)[1:]\n{FOR.replace('(loader)', '(bar)')}",
    ),
    "none is left": (MADE, MADE.replace("False)", "False, drop_last=True)")),
    "a list of running means": (
        ADDS,
        f"{ADDS}            seen.append(total / (i + 1))\n        print(seen)\n",
    ),
    "a running mean is handed on": (
        ADDS,
        f"{ADDS}            kept.update(total / (i + 1))\n        print(kept.loss)\n",
    ),
    "counted from anywhere": (FOR, FOR.replace("(loader)", "(loader, 2 * args.epochs - 1)")),
    "a class makes it": (
        "def evaluate",
        "class Feed(DataLoader):\n    def __init__(self, data, batch_size, shuffle):\n"
        "        super().__init__(data, batch_size=batch_size, shuffle=shuffle)\n\n\ndef evaluate",
    ),
    "noise of a fixed size": (
        LOSS,
        f"{LOSS}            noise = torch.randn(args.batch_size, 5)\n"
        "            loss = loss + model(noise).pow(2).mean()\n",
    ),
    "shown by a method": (
        "def evaluate",
        "class Board:\n    def say(self, loss):\n        print(loss)\n\n\ndef evaluate",
    ),
}


@pytest.mark.parametrize("change", UNEQUAL.values(), ids=UNEQUAL)
def test_parts_are_weighed(change: tuple[str, str], tmp_path: Path) -> None:
    text = text_of(tmp_path, change)
    number = "i - 1" if "enumerate(loader, 1)" in text else "i"
    assert f"(loss * batch_weight(loader, {number})).backward()\n" in text
    assert "batch_size=args.batch_size)\n" in text.partition("distributed_sampler(data")[2]


@pytest.mark.parametrize("change", EQUAL.values(), ids=EQUAL)
def test_parts_stay_equal(change: tuple[str, str], tmp_path: Path) -> None:
    says = (ADDS, f"{ADDS}            Board().say(loss.item())\n")
    also = {
        "class Board": says,
        "class Feed": (MADE, MADE.replace("DataLoader", "Feed")),
        "seen.append": ("        total = 0.0\n", "        total, seen = 0.0, []\n"),
        "kept.update": ("        total = 0.0\n", "        total, kept = 0.0, Kept()\n"),
    }
    if "kept.update" in change[1]:
        says = ("def evaluate", f"{KEPT}def evaluate")
        also["kept."] = says
    changes = [change, *(more for word, more in also.items() if word in change[1])]
    text = text_of(tmp_path, *changes)
    assert "batch_weight" not in text


def test_a_program_that_was_migrated_before_keeps_what_it_has(tmp_path: Path) -> None:
    """What is shown later is weighed where the loop is, and nothing is where it is not."""
    before = text_of(tmp_path)
    says = (", weight=batch_weight(loader, i))\n", "\n")
    assert says[0] in shown_later(tmp_path, before)
    weight = " * batch_weight(loader, i)"
    older = before.replace(f"(loss{weight})", "loss").replace(weight, "")
    older = older.replace(", batch_size=args.batch_size)", ")", 1)
    assert "batch_weight(" not in shown_later(tmp_path, older)


def shown_later(folder: Path, text: str) -> str:
    script = folder / "main.py"
    goes = next(line for line in text.splitlines(True) if ".backward()" in line)
    script.write_text(text.replace(goes, f"{goes}            print(loss.item())\n"))
    migrated(script)
    return script.read_text()


def test_a_batch_size_that_is_kept_has_equal_parts(tmp_path: Path) -> None:
    assert "batch_weight" not in text_of(tmp_path, settings=Settings(batch_size="per-rank"))


def text_of(folder: Path, *changes: tuple[str, str], settings: Settings | None = None) -> str:
    program = PROGRAM
    for old, new in changes:
        assert old in program
        program = program.replace(old, new, 1)
    script = folder / "main.py"
    script.write_text(program)
    migrated(script, settings)
    return script.read_text()
