"""Steps made by hand: what is let through is the same on two processes, the rest is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings

PROGRAM = """import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("RANK", 0))


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.seen, self.every = 0, 2
        self.g = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).double()
        self.d = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def loss_of(self, x):
        return (self.d(self.g(x)) - x.sum(1, keepdim=True)).pow(2).mean()

    def configure_optimizers(self):
{optimizers}
    def training_step(self, batch, batch_idx):
        (x,) = batch
{step}

def main():
    L.seed_everything(0)
    x = torch.randn(40, 4, dtype=torch.float64)
    rows = DataLoader(TensorDataset(x), 8)
    net = Net()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(net, rows)
    torch.save(net.state_dict(), "net.pt" if RANK == 0 else os.devnull)


if __name__ == "__main__":
    main()
"""
ONE = "        return torch.optim.SGD(self.parameters(), 0.1)\n"
TWO = """        g = torch.optim.SGD(self.g.parameters(), 0.1)
        return g, torch.optim.SGD(self.d.parameters(), 0.1)
"""
SCHEDULED = """        sgd = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
        return [sgd], [torch.optim.lr_scheduler.StepLR(sgd, 1, 0.8)]
"""
PLAIN = """        sgd = self.optimizers()
        sgd.zero_grad()
        self.manual_backward(self.loss_of(x))
        sgd.step()
"""
ACCUMULATED = """        sgd = self.optimizers()
        self.manual_backward(self.loss_of(x) / self.every)
        whole = (batch_idx + 1) % self.every == 0
        if whole:
            sgd.step()
            sgd.zero_grad()
"""
GAN = """        g, d = self.optimizers()
        self.seen += 1
        if self.seen % 2 == 0:
            self.toggle_optimizer(g)
            self.manual_backward(-self.d(self.g(x.roll(1, 1))).mean())
            g.step()
            g.zero_grad()
            self.untoggle_optimizer(g)
        self.toggle_optimizer(d)
        fake = self.g(x.roll(1, 1)).detach()
        self.manual_backward(self.d(fake).mean() - self.d(x).tanh().mean())
        d.step()
        d.zero_grad()
        self.untoggle_optimizer(d)
"""
UNTOGGLED = "".join(line for line in GAN.splitlines(True) if "toggle" not in line)
CLIPPED = PLAIN.replace(
    "        sgd.step()", "        self.clip_gradients(sgd, 0.05, 'norm')\n        sgd.step()"
)
STEPPED = PLAIN + "        schedule = self.lr_schedulers()\n        schedule.step()\n"
CLOSED = """        sgd = self.optimizers()

        def closure():
            sgd.zero_grad()
            loss = self.loss_of(x)
            self.manual_backward(loss)
            return loss

        sgd.step(closure)
"""
TWICE = PLAIN.replace(
    "        sgd.step()", "        self.manual_backward(self.loss_of(x * 2))\n        sgd.step()"
)
END = "            return\n"
GO = f"\n    def go(self, x):\n{PLAIN}"
SAME = {
    "in a method": (ONE, f"        self.go(x)\n{GO}"),
    "plain": (ONE, PLAIN),
    "accumulated": (ONE, ACCUMULATED),
    "clipped": (ONE, CLIPPED),
    "scheduled": (SCHEDULED, STEPPED),
    "closure": (ONE, CLOSED),
    "twice": (ONE, TWICE),
    "gan": (TWO, GAN),
    "untoggled": (TWO, UNTOGGLED),
}
LOOKS = '"ddp_find_unused_parameters_true"'
APART = "is decided by what one process has"
DIRECT = "`.backward()` does not average these gradients"
REFUSED = {
    "direct": (
        ONE,
        PLAIN.replace("self.manual_backward(self.loss_of(x))", "self.loss_of(x).backward()"),
        DIRECT,
    ),
    "by the loss": (ONE, ACCUMULATED.replace("if whole", "if self.loss_of(x) > 1"), APART),
    "by a number of the loss": (
        ONE,
        ACCUMULATED.replace("whole = ", "whole = self.loss_of(x).item() < 9 and "),
        APART,
    ),
    "by what a step has kept": (
        ONE,
        ACCUMULATED.replace("if whole", "self.last = x.mean()\n        if self.last > 0"),
        APART,
    ),
    "by a draw": (ONE, ACCUMULATED.replace("if whole", "if torch.rand(1) > 0.5"), APART),
    "schedule": (
        SCHEDULED,
        STEPPED.replace("schedule.step()", "schedule.step(self.loss_of(x))"),
        "a schedule that goes by a process's own number",
    ),
    "after an early end": (
        ONE,
        PLAIN.replace("        sgd.z", f"        if self.loss_of(x) > 9:\n{END}        sgd.z"),
        APART,
    ),
    "in a method": (ONE, f"        if self.loss_of(x) < 9:\n            self.go(x)\n{GO}", APART),
    "after an early end of a method": (
        ONE,
        "        self.go(x)\n"
        + GO.replace("        sgd =", f"        if x.mean() > 9:\n{END}        sgd ="),
        APART,
    ),
    "by what an object has kept": (
        ONE,
        ACCUMULATED.replace("if whole", "if self.meter.avg > 0"),
        APART,
    ),
    "where it may fail": (
        ONE,
        "        try:\n" + "".join(f"    {line}" for line in PLAIN.splitlines(True))
        + "        except RuntimeError:\n            pass\n",
        APART,
    ),
    "gradients by hand": (
        ONE,
        PLAIN.replace(
            "        sgd.step()", "        for p in self.parameters():\n"
            "            p.grad = x.mean() * p.detach()\n        sgd.step()"
        ),
        "put in place by hand",
    ),
}  # fmt: skip


def outcome(folder: Path, optimizers: str, step: str) -> Outcome:
    (folder / "train.py").write_text(PROGRAM.format(optimizers=optimizers, step=step))
    return migrate((folder / "train.py",), Settings())


def files(found: Outcome) -> dict[str, str]:
    assert not found.refusals, found.refusals
    return {change.path: change.after.decode() for change in found.changes}


@pytest.mark.parametrize("form", SAME)
def test_a_step_that_is_the_same_is_let_through(form: str, tmp_path: Path) -> None:
    text = files(outcome(tmp_path, *SAME[form]))["train.py"]
    assert (LOOKS in text) is (form in ("gan", "untoggled"))


@pytest.mark.parametrize("form", REFUSED)
def test_a_step_that_is_not_is_refused(form: str, tmp_path: Path) -> None:
    optimizers, step, said = REFUSED[form]
    found = outcome(tmp_path, optimizers, step)
    assert any(said in one.message for one in found.refusals), found.refusals
    assert not found.changes


RUNNER = """import os, runpy, sys
for form in sys.argv[1:]:
    os.chdir(form)
    sys.path[0] = os.getcwd()
    runpy.run_path("train.py", run_name="__main__")
    os.chdir("..")
"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[float], ...]]:
    """What every form ends with: before and after in one process, after in two."""
    root = tmp_path_factory.mktemp("forms")
    forms: dict[str, dict[str, dict[str, str]]] = {"before": {}, "one": {}, "two": {}}
    for form, (optimizers, step) in SAME.items():
        (root / form).mkdir()
        after = files(outcome(root / form, optimizers, step))
        forms["before"][form] = {"train.py": (root / form / "train.py").read_text()}
        forms["one"][form] = forms["two"][form] = after
    averaged, direct = "self.manual_backward(self.loss_of(x))", "self.loss_of(x).backward()"
    for run in forms.values():
        right = run["plain"]
        run["direct"] = {**right, "train.py": right["train.py"].replace(averaged, direct)}
    found = {run: _ends(root / run, texts, run == "two") for run, texts in forms.items()}
    return {form: tuple(ends[form] for ends in found.values()) for form in forms["one"]}


def _ends(root: Path, texts: dict[str, dict[str, str]], two: bool) -> dict[str, list[float]]:
    import torch

    for form, texts_of in texts.items():
        (root / form).mkdir(parents=True)
        for name, text in texts_of.items():
            (root / form / name).write_text(text)
    (root / "run.py").write_text(RUNNER)
    command = [sys.executable, *(TORCHRUN if two else ()), "run.py", *texts]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    saved = {form: torch.load(root / form / "net.pt", weights_only=True) for form in texts}
    return {f: torch.cat([t.flatten() for t in s.values()]).tolist() for f, s in saved.items()}


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.timeout(500)
class TestWeights:
    """Real processes; float64."""

    @pytest.mark.parametrize("form", SAME)
    def test_two_processes_end_where_one_does(
        self, form: str, weights: dict[str, tuple[list[float], ...]]
    ) -> None:
        before, one, two = weights[form]
        assert one == before
        assert two == pytest.approx(one, abs=1e-10)

    def test_a_backward_that_goes_past_the_module_does_not(
        self, weights: dict[str, tuple[list[float], ...]]
    ) -> None:
        _, one, two = weights["direct"]
        assert two != pytest.approx(one, abs=1e-3)
