"""The result of a migration is read as several ranks would run it, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddpify import disposal, pipeline, stages
from ddpify.lint import Linted
from ddpify.outcome import Outcome
from ddpify.rules import registry
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Span

PROGRAM = """\
import os
import random
import time
from pathlib import Path

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


WITHOUT_404 = replace(Settings(whole_batches=False), ignore=("DDP404",))


def migrated(
    folder: Path,
    before: str = "first = True",
    after: str = "last = True",
    settings: Settings | None = None,
) -> Outcome:
    (folder / "requirements.txt").write_text("torch\n")
    text = PROGRAM.replace("first = step == 0", before).replace("last = step == 9", after)
    (folder / "train.py").write_text(text)
    return pipeline.migrate([folder / "train.py"], settings or Settings(whole_batches=False))


def line_of(mark: str) -> int:
    return next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if mark in line)


SKIPS = [
    "if random.random() < 0.1: continue",
    "if torch.rand(1).item() < 0.1: continue",
    "if time.monotonic() - start > 60: break",
    "if step % 2:\n                if random.random() < 0.1: continue",
    "if os.path.exists('stop'): break",
]


@pytest.mark.parametrize("before", SKIPS)
def test_a_step_that_each_rank_skips_for_itself_is_refused(tmp_path: Path, before: str) -> None:
    """Here by this reading alone: the rule that lets rank 0 decide is switched off."""
    outcome = migrated(tmp_path, before=before, settings=WITHOUT_404)
    (refusal,) = outcome.refusals
    line = line_of("BEFORE") + before.count("\n")  # of the original
    assert refusal.message.startswith(f"train.py:{line}: ")
    assert not outcome.changes


def test_a_limit_of_time_is_refused(tmp_path: Path) -> None:
    after = "if time.time() - start > 3600: break"
    outcome = migrated(tmp_path, after=after, settings=WITHOUT_404)
    (refusal,) = outcome.refusals
    assert refusal.message.startswith(f"train.py:{line_of('AFTER')}: ")


ALONE = [
    *SKIPS,
    "if not Path('go').exists(): break",
    "if step > 3 and time.time() - start > 60: break",
    "over = time.time() - start > 60\n            if over: break",
    "if random.random() < 0.1: torch.save(model.state_dict(), 'some.pt')",
    "while random.random() < 0.1: model(x).sum().backward()",
]


@pytest.mark.parametrize("before", ALONE)
def test_what_each_rank_would_decide_for_itself_rank_0_decides(tmp_path: Path, before: str) -> None:
    outcome = migrated(tmp_path, before=before)
    assert not outcome.refusals
    (found,) = (one for one in outcome.findings if one.rule == "DDP404")
    line = PROGRAM.splitlines().index(
        PROGRAM.split("  # BEFORE")[0].splitlines()[-1] + "  # BEFORE"
    )
    assert found.site.span.line == line + 1 + before.count("\n")
    script = next(change.after for change in outcome.changes if change.path == "train.py")
    assert b" broadcast(" in script


@pytest.mark.parametrize(
    "before",
    [
        "rng = random.Random(step)\n            if rng.random() < 0.1: continue",
        "random.seed(step)\n            if random.random() < 0.1: continue",
    ],
)
def test_what_ranks_draw_alike_is_left_as_it_is(tmp_path: Path, before: str) -> None:
    outcome = migrated(tmp_path, before=before)
    assert not outcome.refusals
    assert not any(one.rule == "DDP404" for one in outcome.findings)


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
    monkeypatch.setattr(stages, "all_rules", lambda: wrong)


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


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.ERROR])
def test_a_line_that_is_left_by_hand_is_no_excuse_for_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, severity: Severity
) -> None:
    """The plan says it of the line; what the other reading says there, too, is weighed."""

    def line(lines: list[str]) -> int:
        return next(n for n, one in enumerate(lines, 1) if ".step()" in one)

    def check(facts: object, settings: Settings) -> list[Finding]:
        site = next(call.site for call in facts.named(".step"))  # type: ignore[attr-defined]
        return [Finding("DDP998", site, "by hand", Severity.WARNING)]

    def judge(root: Path, files: object, texts: dict[Path, bytes], *_: object) -> Linted:
        text = texts[root / "train.py"].decode()
        at = Span(line(text.splitlines()), 0, 1, 0)
        return Linted((Finding("DDP998", Site("train.py", at), "made", severity),))

    known = registry.all_rules()
    rules = (*known, Rule("DDP998", "by-hand", "", "", check))
    monkeypatch.setattr(stages, "all_rules", lambda: rules)
    monkeypatch.setattr(disposal, "lint_scripts", judge)
    outcome = migrated(tmp_path)
    assert bool(outcome.refusals) is (severity is Severity.ERROR)
    told = [one for one in outcome.findings if one.rule == "DDP998"]
    assert len(told) == 1


def test_a_code_that_is_switched_off_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    text = PROGRAM.replace("first = step == 0", "if random.random() < 0.1: continue")
    (tmp_path / "train.py").write_text(text)
    settings = replace(Settings(whole_batches=False), ignore=("DDP404", "DDP803"))
    assert not pipeline.migrate([tmp_path / "train.py"], settings).refusals
