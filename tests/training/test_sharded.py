"""``--strategy fsdp`` with each option trains what DDP trains, on the same ranks and samples.

One process shuffles otherwise than N ranks, so that what FSDP prints is held against what DDP
prints; that DDP's training is that of one process is shown elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put_fixture, write
from tests.support import warm
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

# Each rank says how many elements of weights, gradients and moments it has after a step.
COUNTS = """
import json, os
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

def count(optimizer, *_):
    own = lambda t: t.to_local().numel() if hasattr(t, "to_local") else t.numel()
    held = [p for group in optimizer.param_groups for p in group["params"]]
    moments = [t for p in held for t in optimizer.state[p].values() if t.dim() > 0]
    grads = [p.grad for p in held if p.grad is not None]
    kept = {"parameters": held, "gradients": grads, "moments": moments}
    with open(f"kept.{os.environ.get('RANK', '0')}.json", "w") as file:
        json.dump({name: sum(map(own, some)) for name, some in kept.items()}, file)

register_optimizer_step_post_hook(count)
"""
SETTINGS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "classes": {"strategy": "fsdp", "fsdp_wrap": ("TransformerEncoderLayer",)},
    "offload": {"strategy": "fsdp", "fsdp_offload": True},
    "kept": {"strategy": "fsdp", "fsdp_reshard": False},
    "recompute": {"strategy": "fsdp", "fsdp_recompute": True},
    "bf16": {"strategy": "fsdp", "fsdp_bf16": True},
    "all": {
        "strategy": "fsdp",
        "fsdp_wrap": ("TransformerEncoderLayer",),
        "fsdp_offload": True,
        "fsdp_recompute": True,
        "fsdp_hybrid": True,
    },
}
ENV = {"EPOCHS": "1", "DROPOUT": "0", "LOG_EVERY": "2", "CKPT_EVERY": "8", "BATCH_SIZE": "64"}


@dataclass(frozen=True)
class Trained:
    """What a run printed, its checkpoint, and what each rank kept."""

    lines: list[str]
    folder: Path

    @property
    def checkpoint(self) -> dict[str, Any]:
        loaded: dict[str, Any] = torch.load(self.folder / "ckpt.pt", map_location="cpu")
        return loaded

    def kept(self, what: str) -> list[int]:
        files = sorted(self.folder.glob("kept.*.json"))
        return [json.loads(file.read_text())[what] for file in files]


class Runs:
    """The text classification, migrated with some settings and trained; each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[tuple[str, int], Trained] = {}

    def project(self, settings: str) -> Path:
        folder = self.folder / settings
        entry = put_fixture("text_classification", folder)
        outcome = migrate([entry], Settings(**SETTINGS[settings]))
        assert not outcome.refusals
        write(outcome.changes, outcome.root)
        entry.write_text(COUNTS + entry.read_text())
        return entry

    def __call__(self, settings: str, ranks: int = 2) -> Trained:
        if (settings, ranks) not in self.known:
            entry = self.folder / settings / "train_text.py"
            if not entry.exists():
                entry = self.project(settings)
            folder = self.folder / f"{settings}-{ranks}"
            shutil.copytree(entry.parent, folder)
            done = torchrun(folder / entry.name, ranks, cwd=folder, env=ENV, timeout=240)
            assert done.returncode == 0, done.stderr
            self.known[settings, ranks] = Trained(done.rank_stdout[0].splitlines(), folder)
        return self.known[settings, ranks]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("sharded"))


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [
        ("fsdp", 2),
        ("classes", 2),
        ("kept", 2),
        pytest.param("offload", 2, marks=pytest.mark.thorough),
        pytest.param("recompute", 2, marks=pytest.mark.thorough),
        pytest.param("fsdp", 4, marks=pytest.mark.thorough),
    ],
)
def test_sharded_it_prints_what_replicas_print(settings: str, ranks: int, runs: Runs) -> None:
    assert alike(runs(settings, ranks).lines, runs("ddp", ranks).lines, 2e-4)
    states = runs(settings, ranks).checkpoint, runs("ddp", ranks).checkpoint
    assert distance(*states) < 1e-4


def test_bfloat16_is_close_and_its_checkpoint_is_float32(runs: Runs) -> None:
    assert alike(runs("bf16").lines, runs("ddp").lines, 0.15)
    assert runs("bf16").lines != runs("fsdp").lines
    assert {one.dtype for one in runs("bf16").checkpoint["model"].values()} == {torch.float32}


def test_each_rank_keeps_one_nth(runs: Runs) -> None:
    for what in ("parameters", "gradients", "moments"):
        whole, shards = runs("ddp").kept(what), runs("fsdp").kept(what)
        assert len(set(whole)) == 1
        assert sum(shards) == whole[0], "together they have it once"
        assert max(shards) < 0.52 * whole[0]
        print(what, [round(one / whole[0], 3) for one in shards])


def test_nodes_replicate_what_each_of_them_shards(runs: Runs) -> None:
    """Two nodes of two ranks, on loopback; all options at once."""
    entry = runs.project("all")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=1"]
    nodes = ["--nnodes=2", "--nproc-per-node=2", "--local-addr=127.0.0.1", *meeting]
    command = [warm.python(), "-m", "torch.distributed.run", *nodes, entry.name]
    jobs = [
        subprocess.Popen(
            command,
            cwd=entry.parent,
            env={**environment(), **ENV},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [job.communicate(timeout=240) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    lines = next(out.splitlines() for out, _ in said if out)
    assert alike(lines, runs("ddp", 4).lines, 2e-4)
    kept = Trained(lines, entry.parent).kept("parameters")
    assert sum(kept) == 2 * runs("ddp", 4).kept("parameters")[0], "each node has it once"


@pytest.mark.parametrize(
    ("written", "read"), [("ddp", "fsdp"), ("fsdp", "ddp")], ids=["ddp-to-fsdp", "fsdp-to-ddp"]
)
def test_either_goes_on_from_the_others_checkpoint(written: str, read: str, runs: Runs) -> None:
    """The next epoch, of both, from one file."""
    kept = runs(written).folder / "ckpt.pt"
    found = []
    for settings in (written, read):
        folder = runs.folder / f"{settings}-after-{written}"
        shutil.copytree(runs(settings).folder, folder)
        env = {**ENV, "EPOCHS": "2", "RESUME": str(kept)}
        done = torchrun(folder / "train_text.py", 2, cwd=folder, env=env, timeout=240)
        assert done.returncode == 0, done.stderr
        found.append(done.rank_stdout[0].splitlines())
    assert "resumed from" in found[0][1]
    assert alike(*found, 2e-4)


# -- what is compared ----------------------------------------------------------------------------

_NUMBER = re.compile(r"\d+\.\d+")


def alike(some: list[str], others: list[str], tolerance: float) -> bool:
    """The same lines, but for what rounding makes of their numbers."""
    one, other = "\n".join(some), "\n".join(others)
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(map(float, _NUMBER.findall(one)), map(float, _NUMBER.findall(other)), strict=True)
    return all(abs(a - b) <= tolerance * max(1.0, abs(b)) for a, b in pairs)


def distance(one: Any, other: Any) -> float:
    """The largest difference of two checkpoints; infinite where they are of another form."""
    if isinstance(one, torch.Tensor):
        same = isinstance(other, torch.Tensor) and one.shape == other.shape
        return float((one.double() - other.double()).abs().max()) if same else float("inf")
    if isinstance(one, (dict, list, tuple)):
        keys = list(one) if isinstance(one, dict) else list(range(len(one)))
        if type(one) is not type(other) or len(one) != len(other):
            return float("inf")
        return max((distance(one[key], other[key]) for key in keys), default=0.0)
    if isinstance(one, float):
        return abs(one - other)
    return 0.0 if one == other else float("inf")


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
