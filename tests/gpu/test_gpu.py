"""What a CPU cannot show: NCCL, ranks that share a GPU, half precision, CUDA's own memory count.

The same code runs on the CPU among the thorough tests, so that only the device is new where a GPU
is met for the first time. ``make gpu`` runs what needs one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpify import vendor
from ddpify.settings import Settings
from ddpify.verify.measure import measure
from ddpify.verify.options import Options
from tests.projects import migrated, put, put_fixture
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.thorough),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
# Of a tensor's norm: rounding, of which half precision has 2^-10 (float16) and 2^-7 in one sum.
LIMITS = {
    "all-reduce": 0.0,
    "ddp-float32": 1e-4,
    "ddp-float16": 1e-2,
    "ddp-bfloat16": 4e-2,
    "sync-batch-norm": 1e-4,
    "fsdp-float32": 1e-4,
    "fsdp-bfloat16": 4e-2,
}
DDP = [name for name in LIMITS if name.startswith(("all", "ddp"))]
FSDP = [name for name in LIMITS if name.startswith("fsdp")]
FIRST = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("ranks", "checks"),
    [(1, DDP + FSDP), (2, DDP)],
    ids=["one-rank", "two-ranks-share-a-device"],
)
def test_ranks_train_what_one_process_trains(
    ranks: int, checks: list[str], device: str, tmp_path: Path
) -> None:
    found = compared(device, ranks, checks, tmp_path)
    backend = "nccl" if device == "cuda" and ranks == 1 else "gloo"
    assert all(f"{device}:{backend}" in one["backend"] for one in found), found


@pytest.mark.thorough
def test_two_ranks_shard_on_the_cpu(tmp_path: Path) -> None:
    """Gloo is not asked to do so with tensors of a GPU."""
    compared("cpu", 2, FSDP, tmp_path)


@pytest.mark.gpu
def test_batch_norm_is_that_of_the_whole_batch(tmp_path: Path) -> None:
    """SyncBatchNorm takes tensors of a GPU only."""
    compared("cuda", 2, ["sync-batch-norm"], tmp_path)


PRINTS = {
    "ddp": Settings(strategy="ddp"),
    "fsdp": Settings(strategy="fsdp"),
}
NAMED = ("@dataclass\nclass ClassifierOutput:", "class ClassifierOutput(NamedTuple):")
TUPLE = ("import dataclass\n", "import dataclass\nfrom typing import NamedTuple\n")
# Each with clipping, GradScaler where the device has it, and a checkpoint.
OPTIONS = {
    "bf16": Settings(strategy="fsdp", fsdp_bf16=True),
    "offload": Settings(strategy="fsdp", fsdp_offload=True),
    "hybrid-recompute": Settings(strategy="fsdp", fsdp_hybrid=True, fsdp_recompute=True),
    "no-reshard": Settings(strategy="fsdp", fsdp_reshard=False),
    "sharded": Settings(strategy="fsdp", checkpoint="sharded"),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strategy", PRINTS)
@pytest.mark.parametrize("name", ["ladder-05_amp", "text_classification"])
def test_a_migrated_script_prints_on_one_rank_what_it_printed(
    name: str, strategy: str, device: str, tmp_path: Path
) -> None:
    """With autocast and GradScaler where there is a GPU, over NCCL."""
    parted = prints_apart(name, PRINTS[strategy], device, tmp_path)
    assert parted <= (2e-2 if device == "cuda" else 1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("option", OPTIONS)
def test_options_print_on_one_rank_what_the_script_printed(
    option: str, device: str, tmp_path: Path
) -> None:
    """Streams of host and GPU memory, and of NCCL, are the GPU's own matter."""
    parted = prints_apart("text_classification", OPTIONS[option], device, tmp_path)
    assert parted <= (5e-2 if device == "cuda" or option == "bf16" else 1e-4)


def prints_apart(name: str, settings: Settings, device: str, folder: Path) -> float:
    """How far printed numbers part; the text around them is the same."""
    before, after = (put_fixture(name, folder / side) for side in ("before", "after"))
    if torch.__version__ < (2, 13):  # type: ignore[operator]
        for script in (before, after):  # ready_to_shard says why
            script.write_text(script.read_text().replace(*NAMED).replace(*TUPLE))
    migrated(after, settings)
    env = {**seen(device), "EPOCHS": "1", "DROPOUT": "0", "LOG_EVERY": "2"}
    done = subprocess.run(
        [sys.executable, before.name],
        cwd=before.parent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    job = torchrun(after, 1, cwd=after.parent, env=env, timeout=240)
    assert job.returncode == 0, job.stderr
    one, other = (re.split(r"(\d+\.\d+)", text) for text in (done.stdout, job.rank_stdout[0]))
    assert one[::2] == other[::2]
    pairs = [(float(a), float(b)) for a, b in zip(one[1::2], other[1::2], strict=True)]
    assert pairs
    parted = max(abs(a - b) / max(1.0, abs(a)) for a, b in pairs)
    chosen = {k: v for k, v in asdict(settings).items() if v != getattr(Settings(), k)}
    print(f"\n{name} {chosen}: {len(pairs)} printed numbers, at most {parted:.2g} apart")
    return parted


LARGE = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 512), torch.randint(0, 8, (64,)))
layers = [nn.Linear(512, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(WIDTH, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # others have copies for a moment
for _ in range(2):
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("device", "width"),
    [
        pytest.param("cpu", 256, marks=pytest.mark.thorough),
        pytest.param("cuda", 4096, marks=pytest.mark.gpu),
    ],
)
def test_memory_is_what_the_plan_derives(
    device: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seen(device).items():
        monkeypatch.setenv(name, value)
    put({"train.py": LARGE.replace("WIDTH", str(width))}, tmp_path)
    found = measure(Options(script=tmp_path / "train.py", timeout=120))
    kept = found.parameters + found.buffers + found.gradients + found.state
    derived = kept + found.inputs + found.saved + found.outputs - found.shared + found.loss
    print(f"\nderived {derived / 2**20:.1f} MiB, allocated {found.allocated / 2**20:.1f} MiB")
    assert found.device.startswith(device)
    if device == "cuda":  # 330 MiB; cuBLAS takes a few more for itself
        assert 0.8 * derived <= found.allocated <= 1.3 * derived


def compared(device: str, ranks: int, checks: list[str], folder: Path) -> list[dict[str, Any]]:
    """What rank 0 printed of each check; all are within their limits."""
    (folder / "ddp_utils.py").write_text(vendor.core_text())
    script = Path(shutil.copy(Path(__file__).with_name("compare.py"), folder))
    job = torchrun(script, ranks, device, *checks, cwd=folder, env=seen(device), timeout=300)
    assert job.returncode == 0, job.stderr
    found = [json.loads(line) for line in job.rank_stdout[0].splitlines()]
    assert [one["check"] for one in found] == checks
    for one in found:
        print(f"\n{device}, {ranks} rank(s), {one['check']}: {one['parted']:.3g}", end="")
    print()
    assert {n: p for n, p in ((o["check"], o["parted"]) for o in found) if not p <= LIMITS[n]} == {}
    return found


def seen(device: str) -> dict[str, str]:
    """One GPU at most, whatever the machine has."""
    return {"CUDA_VISIBLE_DEVICES": FIRST if device == "cuda" else "", "OMP_NUM_THREADS": "1"}


def test_the_sentence_is_said_where_there_is_no_gpu() -> None:
    """`make gpu` ends well on any machine."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("no GPU here: torch") == 1
    assert "passed" not in done.stdout
