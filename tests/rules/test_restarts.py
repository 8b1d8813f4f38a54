"""Passes that begin before an epoch is over, or in epochs that are counted anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from tests.projects import migrated, put_example

OTHERS = "    others = DataLoader(TensorDataset(signals, labels), opt.bs, shuffle=True)\n"
STEP = "        for signal, label in fitting:\n            adam.zero_grad()\n"
CAUGHT = """        pairs = iter(others)
        for signal, label in fitting:
            try:
                signal, label = next(pairs)
            except StopIteration:
                pairs = iter(others)
                signal, label = next(pairs)
            adam.zero_grad()
"""
ENDLESS = """def endless(loader):
    while True:
        yield from loader


def accuracy"""
TAKEN = """        for step in range(9):
            signal, label = next(feed)
            adam.zero_grad()
"""


def written(folder: Path, *changes: tuple[str, str]) -> str:
    put_example(changed(SINGLE, *changes), folder)
    migrated(folder / "main.py")
    return (folder / "main.py").read_text()


def test_an_iterator_that_is_begun_again(tmp_path: Path) -> None:
    text = written(tmp_path, ("    holdout =", f"{OTHERS}    holdout ="), (STEP, CAUGHT))
    assert "except StopIteration:\n                pairs = iter(new_pass(others))" in text
    assert "        pairs = iter(others)\n        for i, (signal" in text, "the epoch's first pass"
    assert "begin_epoch(others, round_)" in text


def test_a_generator_without_end(tmp_path: Path) -> None:
    text = written(
        tmp_path,
        ("def accuracy", ENDLESS),
        ("    for round_", "    feed = endless(fitting)\n    for round_"),
        (STEP, TAKEN),
    )
    assert "yield from new_pass(loader)" in text


@pytest.mark.parametrize("made", ["", "        fitting = DataLoader(rows, 32, shuffle=True)\n"])
def test_epochs_that_are_counted_anew(made: str, tmp_path: Path) -> None:
    head = "    for turn in range(2):\n"
    rows = "    rows = TensorDataset(signals[:800], labels[:800])\n"
    body = SINGLE.files[0][1].partition("    for round_")[2].partition("    torch.save")[0]
    nested = "".join(f"    {line}\n" for line in f"    for round_{body}".splitlines())
    outside = (
        f"    fitting{SINGLE.files[0][1].partition('    fitting')[2].partition('    holdout')[0]}"
    )
    text = written(
        tmp_path,
        (outside, "" if made else outside),
        (f"    for round_{body}", f"{rows}{head}{made}{nested}"),
    )
    told = "begin_epoch(fitting, round_)" if made else "begin_epoch(fitting, passes)"
    assert told in text
    assert ("passes += 1" in text) is not bool(made)
