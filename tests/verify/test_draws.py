"""Programs that draw in the training loop: not decided, and decided with neutral draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddpify.verify.options import Options
from ddpify.verify.recording import NoiseRecord, RunRecord
from ddpify.verify.run import verify
from ddpify.verify.verdict import Check, Verdict, Verification
from tests.verify.factories import checked, evidence, ranks, reference
from tests.verify.hazards.base import changed, put

HEAD = """import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH = 16


def data():
    fixed = torch.Generator().manual_seed(1)
    return TensorDataset(torch.rand(96, 8, generator=fixed))


def mean(number):
    number = torch.as_tensor(number)
    if dist.is_initialized():
        dist.all_reduce(number)
        number /= dist.get_world_size()
    return number.item()
"""

# What both programs share: an original in one process, and ranks by hand.
ALONE = """

def prepare(make):
    torch.manual_seed(0)
    np.random.seed(0)
    return DataLoader(data(), batch_size=BATCH, shuffle=True), make()


def wrap(model):
    return model
"""
RANKS = """

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")


def prepare(make):
    torch.manual_seed(0)
    made = make()
    torch.manual_seed(100 + RANK)
    np.random.seed(100 + RANK)
    sampler = DistributedSampler(data(), WORLD, RANK, shuffle=True)
    return DataLoader(sampler.dataset, batch_size=BATCH // WORLD, sampler=sampler), made


def wrap(model):
    return DistributedDataParallel(model)
"""
MAIN = """

loader, made = prepare(make)
models = [wrap(model) for model in made]
optimizers = [torch.optim.Adam(model.parameters(), 1e-2) for model in models]
for epoch in range(2):
    if hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(epoch)
    for (x,) in loader:
        loss = train(x, models, optimizers)
    shown = mean(loss.detach())
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"epoch {epoch} loss {shown:.9f}")
if dist.is_initialized():
    dist.destroy_process_group()
"""
GAN = """

def make():
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.Sigmoid())
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    return generator, critic


def train(x, models, optimizers):
    generator, critic = models
    real, fake = torch.ones(len(x), 1), torch.zeros(len(x), 1)
    z = torch.randn(len(x), 4)
    made = generator(z)
    optimizers[1].zero_grad()
    share = torch.rand(len(x), 1)
    mixed = share * x + (1 - share) * made.detach()
    loss = F.binary_cross_entropy_with_logits(critic(x), real)
    loss = loss + F.binary_cross_entropy_with_logits(critic(mixed), fake)
    loss.backward()
    optimizers[1].step()
    optimizers[0].zero_grad()
    loss = F.binary_cross_entropy_with_logits(critic(made), real)
    loss.backward()
    optimizers[0].step()
    return loss
"""
ARRAYS = (
    ("torch.randn(len(x), 4)", "torch.Tensor(np.random.normal(0, 1, (x.shape[0], 4)))"),
    ("torch.rand(len(x), 1)", "torch.tensor(np.random.random((x.size(0), 1)), dtype=x.dtype)"),
)
MIXED = (
    ("torch.randn(len(x), 4)", "torch.distributions.Normal(0.0, 1.0).sample((len(x), 4))"),
    ("torch.rand(len(x), 1)", "float(np.random.beta(0.4, 0.4))"),
)
PERMUTED = ("torch.rand(len(x), 1)", "x[torch.randperm(len(x))][:, :1]")
VAE = """

class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(8, 6)
        self.decode = nn.Linear(3, 8)

    def forward(self, x):
        mu, logvar = self.encode(x).chunk(2, 1)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(logvar)
        return torch.sigmoid(self.decode(z)), mu, logvar


def make():
    return (VAE(),)


def train(x, models, optimizers):
    optimizers[0].zero_grad()
    made, mu, logvar = models[0](x)
    bce = F.binary_cross_entropy(made, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    loss = (bce + kld) / len(x)
    loss.backward()
    optimizers[0].step()
    return loss
"""


def verified(
    folder: Path, body: str, neutralise: Sequence[str] = (), bug: tuple[str, str] | None = None
) -> Verification:
    """One process against two ranks that were written by hand."""
    ranks = HEAD + RANKS + body + MAIN
    options = Options(
        script=put(changed(ranks, bug) if bug else ranks, folder / "distributed"),
        baseline=str(put(HEAD + ALONE + body + MAIN, folder / "original").parent),
        neutralise=frozenset(neutralise),
        timeout=60.0,
    )
    return verify(options)


def verdicts(result: Verification) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in result.checks}


TRAINING = ("gradients", "trajectory", "loss")


@pytest.mark.training
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(changed(GAN, *ARRAYS), id="gan", marks=pytest.mark.thorough),
        pytest.param(VAE, id="vae", marks=pytest.mark.thorough),
    ],
)
def test_other_draws_leave_it_undecided(body: str, tmp_path: Path) -> None:
    result = verified(tmp_path, body)
    found = verdicts(result)
    assert {found[name] for name in TRAINING} == {Verdict.UNDECIDED}, found
    assert Verdict.FAIL not in found.values(), found
    assert result.causes == ()
    hints = [line for check in result.checks for line in check.details]
    assert any("--neutralise draws" in line for line in hints)


@pytest.mark.training
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(changed(GAN, *ARRAYS), id="gan"),
        pytest.param(
            changed(GAN, *MIXED), id="gan by distributions, mixup", marks=pytest.mark.thorough
        ),
        pytest.param(VAE, id="vae", marks=pytest.mark.thorough),
    ],
)
def test_neutral_draws_decide_it(body: str, tmp_path: Path) -> None:
    result = verified(tmp_path, body, ["draws"])
    found = verdicts(result)
    assert {found[name] for name in (*TRAINING, "probe", "metrics")} == {Verdict.PASS}, found
    assert result.passed, found


@pytest.mark.training
def test_half_the_loss_fails_with_neutral_draws(tmp_path: Path) -> None:
    bug = ("    loss.backward()\n", "    (loss / 2).backward()\n")
    result = verified(tmp_path, VAE, ["draws"], bug)
    assert verdicts(result)["gradients"] is Verdict.FAIL
    assert [cause.rule for cause in result.causes] == ["DDP401"]


@pytest.mark.thorough
@pytest.mark.training
def test_ranks_that_part_fail_whatever_they_draw(tmp_path: Path) -> None:
    bug = ("DistributedDataParallel(model)", "model")
    result = verified(tmp_path, changed(GAN, *ARRAYS), bug=bug)
    assert verdicts(result)["gradients"] is Verdict.FAIL
    assert result.causes[0].rule == "DDP301"


@pytest.mark.thorough
@pytest.mark.training
def test_a_permutation_of_the_batch_stays_undecided_and_says_why(tmp_path: Path) -> None:
    result = verified(tmp_path, changed(GAN, PERMUTED), ["draws"])
    check = next(check for check in result.checks if check.name == "gradients")
    assert check.verdict is Verdict.UNDECIDED
    assert "randperm(16) #0, randperm(8) #0" in check.details[1]


@pytest.mark.training
def test_ranks_that_draw_the_same_rows_are_wrong(tmp_path: Path) -> None:
    bug = ("np.random.seed(100 + RANK)", "np.random.seed(100)")
    result = verified(tmp_path, changed(GAN, *ARRAYS), bug=bug)
    check = next(check for check in result.checks if check.name == "contents")
    assert check.verdict is Verdict.FAIL
    assert [cause.rule for cause in result.causes] == ["DDP111"]


def test_draws_excuse_a_gradient_until_they_are_neutral() -> None:
    met, none = NoiseRecord(draws=6), NoiseRecord()
    assert _gradients(met, met).verdict is Verdict.UNDECIDED
    assert "--neutralise draws" in _gradients(met, met).details[0]
    assert _gradients(none, none).verdict is Verdict.FAIL
    assert _gradients(none, none, "draws").verdict is Verdict.FAIL
    alike = NoiseRecord(shared=("rand() #0",))
    assert _gradients(alike, alike, "draws").verdict is Verdict.FAIL
    assert _gradients(met, met, factor=0.5).verdict is Verdict.FAIL


def test_draws_that_cannot_be_neutral_stay_an_excuse() -> None:
    one, many = NoiseRecord(shared=("randperm(4) #0",)), NoiseRecord(shared=("randperm(2) #0",))
    check = _gradients(one, many, "draws")
    assert check.verdict is Verdict.UNDECIDED
    assert "--neutralise" not in check.details[0]
    assert "randperm(2) #0, randperm(4) #0" in check.details[1]
    own = _gradients(NoiseRecord(draws=6), NoiseRecord(draws=6), "draws")
    assert own.verdict is Verdict.UNDECIDED
    assert "generator of the script's own" in own.details[1]


def _gradients(one: NoiseRecord, many: NoiseRecord, *neutralise: str, factor: float = 0.0) -> Check:
    """Of ranks whose gradients are off in one element, or by a factor."""
    runs = ranks(gradient=factor) if factor else tuple(map(_nudged, ranks()))
    found = evidence(
        tuple(replace(run, noise=many) for run in runs),
        replace(reference(), noise=one),
        options={"neutralise": frozenset(neutralise)},
    )
    return checked(found, "gradients")


def _nudged(run: RunRecord) -> RunRecord:
    first = run.steps[0]
    assert first.gradients[0] is not None
    off = (first.gradients[0] + np.eye(4)[0], *first.gradients[1:])
    return replace(run, steps=(replace(first, gradients=off), *run.steps[1:]))
