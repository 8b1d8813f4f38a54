"""What `begin_epoch` is told in loops of any shape: a resumed run goes on counting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import migrated
from tests.training.one_line.reader import TABLES

HERE = Path(__file__).parents[1] / "training" / "one_line"
PROGRAM = (HERE / next(iter(TABLES))).read_text()
FOR = "    for epoch in range(args.epochs):\n"
RESUMES = '    first = torch.load("last.pt")["epoch"] if args.epochs > 3 else 0\n'
END = "        acc = evaluate(model, test_loader)\n"
LOOPS = {
    "from-first": (f"{RESUMES}    for epoch in range(first, args.epochs):\n", "", "epoch"),
    "further": (
        f"{RESUMES}    for n in range(args.epochs - first):\n        epoch = first + n\n",
        "",
        "first + n",
    ),
    "further-counted": (
        f"{RESUMES}    for _ in range(args.epochs - first):\n",
        "        epoch = first\n        first += 1\n",
        "first",
    ),
    "not-of-a-checkpoint": ("    for epoch in range(args.epochs - 1):\n", "", "epoch"),
    "while": (
        "    epoch = 0\n    while epoch < args.epochs:\n",
        "        epoch += 1\n        args.lr *= 2\n",
        "epoch",
    ),
    "while-true": (
        "    epoch, rounds = 0, 5\n    while True:\n        rounds += 1\n",
        "        epoch += 1\n        if epoch == args.epochs:\n            break\n",
        "epoch",
    ),
    "while-twice": (
        "    epoch = 0\n    while epoch < args.epochs:\n",
        "        epoch += 1\n        if args.lr > 3:\n            epoch = 9\n",
        "passes",
    ),
    "attribute": ("    for args.epoch in range(3):\n        epoch = 0\n", "", "args.epoch"),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_what_begins_an_epoch(loop: tuple[str, str, str], tmp_path: Path) -> None:
    begins, ends, told = loop
    text = text_of(tmp_path, (FOR, begins), (END, END + ends))
    assert f"begin_epoch(loader, {told})\n" in text


def test_steps_of_a_checkpoint_say_which_pass_it_is(tmp_path: Path) -> None:
    """Without a checkpoint a run begins with pass 0, whatever the steps are."""
    steps = "    step = first\n    while step < 9:\n        epoch = step\n"
    counts = (
        "            total += loss.item()\n",
        "            total += loss.item()\n            step += 1\n",
    )
    text = text_of(tmp_path / "goes-on", (FOR, RESUMES + steps), counts)
    assert "    passes = step // len(loader)\n" in text
    text = text_of(tmp_path / "anew", (FOR, "    first = 0\n" + steps), counts)
    assert "    passes = 0\n" in text


@pytest.mark.parametrize(
    ("seeds", "before"),
    [
        ("        torch.manual_seed(epoch)\n        random.seed(epoch)\n", "random.seed(epoch)\n"),
        (
            "        batches = iter(loader)\n        torch.manual_seed(epoch)\n",
            "range(args.epochs):\n",
        ),
        ("        random.setstate(random.getstate())\n", "range(args.epochs):\n"),
    ],
    ids=["seeds", "once-a-pass-has-begun", "state"],
)
def test_what_seeds_all_ranks_alike_comes_first(seeds: str, before: str, tmp_path: Path) -> None:
    """``torch.manual_seed(seed + epoch)`` later would undo it: one dropout mask for all ranks."""
    text = text_of(tmp_path, (FOR, FOR + seeds))
    assert f"{before}        begin_epoch(loader, epoch)\n" in text


def text_of(folder: Path, *replacements: tuple[str, str]) -> str:
    program = PROGRAM
    for old, new in replacements:
        assert old in program
        program = program.replace(old, new, 1)
    folder.mkdir(exist_ok=True)
    script = folder / "main.py"
    script.write_text(program)
    migrated(script)
    return script.read_text()
