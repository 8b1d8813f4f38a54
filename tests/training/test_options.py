"""What flags tell DistributedDataParallel is written into the program, and trains the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from ddpify.settings import Settings
from tests.projects import migrated
from tests.support import warm
from tests.support.torchrun import torchrun
from tests.training.alike import same, train_alike
from tests.training.one_line.reader import variants

pytestmark = [pytest.mark.training, pytest.mark.spread]
ONE_LINE = Path(__file__).parent / "one_line"
STEP = "            optimizer.step()\n"


def test_what_the_wrapper_is_told(tmp_path: Path) -> None:
    program = variants()["w_last_too"].replace("m.pth", "net.pt").replace("%.6f", "%.9f")
    told = Settings(find_unused="on", static_graph=False, bucket_cap=1, sync_bn="on")
    text = train_alike(program, tmp_path, told)
    assert "wrap_model(model, find_unused_parameters=True, bucket_cap_mb=1)\n" in text


def test_a_static_graph_is_averaged_in_each_backward(tmp_path: Path) -> None:
    program = variants()["w_counter"].replace("m.pth", "net.pt").replace("%.6f", "%.9f")
    text = train_alike(program, tmp_path, Settings(static_graph=True))
    assert "wrap_model(model, static_graph=True)\n" in text
    assert "gradient_sync" not in text


def _trained(program: str, folder: Path, *arguments: str) -> dict[str, torch.Tensor]:
    folder.mkdir()
    (folder / "train.py").write_text(program)
    subprocess.run([warm.python(), "train.py", *arguments], cwd=folder, check=True)
    weights: dict[str, torch.Tensor] = torch.load(folder / "m.pth")
    return weights


@pytest.mark.parametrize(
    ("settings", "rate", "line"),
    [
        pytest.param(
            Settings(batch_size="per-rank", lr_scale="linear"),
            "1.0",
            "lr=scaled_lr(args.lr))",
            id="linear",
        ),
        pytest.param(
            Settings(batch_size="per-rank", lr_scale="sqrt", warmup_steps=3),
            "0.5 * (1 + (2 ** 0.5 - 1) * min(1, (n + 1) / 3))",
            'warm_up(optimizer, 3, "sqrt")\n',
            id="sqrt-warmed-up",
        ),
    ],
)
def test_a_rate_that_grows_with_the_batch(
    settings: Settings, rate: str, line: str, tmp_path: Path
) -> None:
    """Two ranks with 8 samples each and a rate of 0.5 train as one process with 16."""
    program = (ONE_LINE / "program.txt").read_text().replace("make(16, 1)", "make(48, 1)")
    by_hand = f"            for g in optimizer.param_groups:\n                g['lr'] = {rate}\n"
    alone = program.replace(STEP, f"{by_hand}{STEP}            n += 1\n")
    alone = alone.replace("    for epoch in", "    n = 0\n    for epoch in", 1)
    wanted = _trained(alone, tmp_path / "one", "--batch-size=16")
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "train.py").write_text(program)
    migrated(folder / "train.py", settings)
    assert line in (folder / "train.py").read_text()
    done = torchrun(folder / "train.py", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert same(torch.load(folder / "m.pth"), wanted, 1e-12)
