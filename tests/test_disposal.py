"""The result of a migration is read as several ranks would run it, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddpify import pipeline
from ddpify.outcome import Outcome
from ddpify.rules import registry
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.settings import Settings

PROGRAM = """\
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def main():
    data = datasets.MNIST("d", train=True, transform=transforms.ToTensor())
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    start = time.time()
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            first = step == 0  # BEFORE
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            last = step == 9  # AFTER
    torch.save(model.state_dict(), "m.pt")


if __name__ == "__main__":
    main()
"""


def migrated(folder: Path, before: str = "first = True", after: str = "last = True") -> Outcome:
    (folder / "requirements.txt").write_text("torch\n")
    text = PROGRAM.replace("first = step == 0", before).replace("last = step == 9", after)
    (folder / "train.py").write_text(text)
    return pipeline.migrate([folder / "train.py"], Settings())


def line_of(mark: str) -> int:
    return next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if mark in line)


@pytest.mark.parametrize(
    "before",
    [
        "if random.random() < 0.1: continue",
        "if torch.rand(1).item() < 0.1: continue",
        "if time.monotonic() - start > 60: break",
    ],
)
def test_a_step_that_each_rank_skips_for_itself_is_refused(tmp_path: Path, before: str) -> None:
    outcome = migrated(tmp_path, before=before)
    (refusal,) = outcome.refusals
    assert refusal.message.startswith(f"train.py:{line_of('BEFORE')}: ")  # of the original
    assert not outcome.changes


def test_a_limit_of_time_is_refused(tmp_path: Path) -> None:
    outcome = migrated(tmp_path, after="if time.time() - start > 3600: break")
    (refusal,) = outcome.refusals
    assert refusal.message.startswith(f"train.py:{line_of('AFTER')}: ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("first = True", "if time.time() - start > 10: print(step)"),
        ("x = x * random.random()", "last = True"),
        ("if step % 2 == 0: continue", "if step > 99: break"),
        ("first = time.time()", "print(time.time() - first, loss.item())"),
    ],
)
def test_what_decides_about_no_step_is_migrated(tmp_path: Path, before: str, after: str) -> None:
    outcome = migrated(tmp_path, before, after)
    assert not outcome.refusals
    assert outcome.changes


def with_rule(monkeypatch: pytest.MonkeyPatch, code: str, severity: Severity) -> None:
    """A rule whose fix is wrong: it puts ``code`` in place of the line of the mark."""

    def check(facts: object, settings: object) -> list[Finding]:
        site = next(call.site for call in facts.named("torch.save"))  # type: ignore[attr-defined]
        module = facts.runtime[0]  # type: ignore[attr-defined]
        names = tuple(Import(module, name) for name in ("barrier", "is_main_process"))
        fix = (Edit(How.BEFORE, site, code, imports=names),)
        return [Finding("DDP998", site, "made for this test", severity, fix)]

    known = registry.all_rules()
    wrong = (*known, Rule("DDP998", "wrong", "", "", check))
    monkeypatch.setattr(pipeline, "all_rules", lambda: wrong)


HANGS = "if is_main_process():\n    barrier()"


def test_a_fix_that_would_hang_is_withdrawn_and_the_rest_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rule(monkeypatch, HANGS, Severity.WARNING)
    outcome = migrated(tmp_path)
    assert not outcome.refusals
    assert outcome.changes
    left = next(one for one in outcome.findings if one.rule == "DDP998")
    assert not left.fix
    assert "DDP801" in left.advice
    script = next(change.after for change in outcome.changes if change.path == "train.py")
    assert b"barrier()" not in script
    assert b"wrap_model(" in script


def test_without_a_fix_that_is_needed_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rule(monkeypatch, HANGS, Severity.ERROR)
    outcome = migrated(tmp_path)
    assert not outcome.changes
    assert any("DDP801" in refusal.message for refusal in outcome.refusals)


def test_a_code_that_is_switched_off_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    text = PROGRAM.replace("first = step == 0", "if random.random() < 0.1: continue")
    (tmp_path / "train.py").write_text(text)
    settings = replace(Settings(), ignore=("DDP404", "DDP803"))
    assert not pipeline.migrate([tmp_path / "train.py"], settings).refusals
