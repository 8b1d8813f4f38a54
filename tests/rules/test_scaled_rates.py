"""Which learning rates are multiplied where the batch size is kept on each rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings, SettingsError, checked
from tests.projects import migrated
from tests.training.one_line.reader import TABLES

HERE = Path(__file__).parents[1] / "training" / "one_line"
PROGRAM = (HERE / next(iter(TABLES))).read_text()
MADE = "    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)\n"
LINEAR = Settings(batch_size="per-rank", lr_scale="linear")
GROUPS = """    optimizer = torch.optim.Adam([
        {"params": model.body.parameters(), "lr": args.lr * 0.1},
        {"params": model.head.parameters()},
    ], lr=args.lr)
"""
LATER = """        for group in optimizer.param_groups:
            group["lr"] = args.lr * 0.1 ** epoch
"""
RELATIVE = """        for group in optimizer.param_groups:
            group["lr"] *= 0.5
            before = group["lr"]
            group["lr"] = before * 0.5
"""
CYCLE = (
    "    sched = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=9)\n"
)


@pytest.mark.parametrize(
    ("old", "new", "written", "times"),
    [
        pytest.param(MADE, MADE, ["lr=scaled_lr(args.lr))"], 1, id="optimizer"),
        pytest.param(MADE, GROUPS, ['"lr": scaled_lr(args.lr * 0.1)'], 2, id="groups"),
        pytest.param(
            "        model.train()\n",
            f"{LATER}        model.train()\n",
            ['group["lr"] = scaled_lr(args.lr * 0.1 ** epoch)'],
            2,
            id="later",
        ),
        pytest.param(
            "        model.train()\n",
            f"{RELATIVE}        model.train()\n",
            ['group["lr"] = before * 0.5'],
            1,
            id="of-the-rate-that-is-there",
        ),
        pytest.param(
            MADE,
            f"    said = {{}}\n    said['lr'] = args.lr\n{MADE}",
            ["said['lr'] = args.lr\n"],
            1,
            id="of-another-dict",
        ),
        pytest.param(MADE, MADE + CYCLE, ["max_lr=scaled_lr(args.lr)"], 2, id="cycle"),
    ],
)
def test_rates_that_the_program_says(
    old: str, new: str, written: list[str], times: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.replace(old, new, 1))
    migrated(script, LINEAR)
    text = script.read_text()
    assert all(part in text for part in written)
    assert text.count("scaled_lr(") == times
    migrated(script, LINEAR)
    assert script.read_text() == text


def test_a_rate_has_no_reason_to_grow_with_the_same_batch() -> None:
    with pytest.raises(SettingsError, match="lr-scale goes with batch-size per-rank"):
        checked(Settings(lr_scale="linear"), "")
    with pytest.raises(SettingsError, match="warmup-steps goes with lr-scale"):
        checked(Settings(warmup_steps=5), "")
