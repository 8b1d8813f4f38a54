"""The numbers that the seed guides state, of migrated scripts on real ranks.

The guides are the notes that this project began with (shared/seeds, by their numbers 001, 002,
003); the sentence that states a number is quoted in the test's docstring, with an x for the sign.
fixtures/toy_ladder is what seed 003 builds up to, before its DDP steps. Ranks are watched from
outside, so what they did is counted and not believed. Of the sanity checks at the end of 003 two
are not here: "sample predictions" are to be looked at by a person, and the probe loss follows from
parameters that are the same bits.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from ddpify.settings import Settings
from ddpify.verify.launch import ProcessLaunch, run_ranks, run_single
from ddpify.verify.recording import Backward, Fetch, ForwardRecord, Job, RunRecord, Signature
from tests.projects import migrated, put, put_fixture
from tests.support import warm
from tests.training import judges
from tests.training.projects import edit
from tests.training.runs import side_by_side

pytestmark = pytest.mark.training

PER_RANK = Settings(batch_size="per-rank")
WRAP = "    model = wrap_model(model)\n"
# Each all-reduce of gradients adds a letter to a file of the rank's own.
COUNTED = """    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    def count(group, bucket):
        with open(f"reduced.{dist.get_rank()}", "a") as file:
            file.write("r")
        return default_hooks.allreduce_hook(group, bucket)
    model.register_comm_hook(None, count)
"""


@dataclass(frozen=True)
class Rung:
    """A script of the ladder in a folder of its own, as its author wrote it or migrated."""

    script: Path

    def run(self, ranks: int, *observe: str, **variables: str) -> Job:
        """To the end, on torchrun's ranks; 0 is plain python. Variables are as the shell has."""
        folder = self.script.parent.resolve()
        launch = ProcessLaunch(
            python=warm.python(),
            folder=folder,
            cwd=folder,
            script=Path(self.script.name),
            arguments=(),
            out=folder.with_name(f"{folder.name}-observed-{len(os.listdir(folder.parent))}"),
            observe=observe,
            timeout=180,
            environment={"OMP_NUM_THREADS": "1", **variables},
        )
        job = run_ranks(launch, ranks) if ranks else run_single(launch)
        assert job.finished, "\n".join(run.stderr for run in job.runs)
        return job


Ladder = Callable[..., Rung]


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Ladder:
    """A rung by its name; given settings, it is migrated."""

    def rung(name: str, settings: Settings | None = None) -> Rung:
        entry = put_fixture(f"ladder-{name}", tmp_path_factory.mktemp(name) / "ladder")
        if settings is not None:
            migrated(entry, settings)
        return Rung(entry)

    return rung


def fetched(run: RunRecord, passed: int) -> list[tuple[int | str, ...]]:
    """The batches of one epoch."""
    events = (event for event in run.events if isinstance(event, Fetch) and event.grad)
    return [event.samples for event in events if event.passed == passed]


def of_epoch(run: RunRecord, passed: int) -> list[int | str]:
    return [sample for batch in fetched(run, passed) for sample in batch]


def between_steps(run: RunRecord) -> list[int]:
    """How many samples went into each optimizer step."""
    counts = [0] * len(run.steps)
    for event in run.events:
        if isinstance(event, Fetch) and event.grad and event.steps < len(counts):
            counts[event.steps] += len(event.samples)
    return counts


def numbers(job: Job, pattern: str) -> list[float]:
    """What rank 0 printed where the pattern has its group."""
    return [float(number) for number in re.findall(pattern, job.runs[0].stdout)]


# ---- 1,000 samples
@pytest.fixture(scope="module")
def epochs(ladder: Ladder) -> Job:
    """Two epochs of 1,000 samples on four ranks."""
    return ladder("02_epochs", Settings()).run(4, EPOCHS="2")


def test_four_ranks_have_250_of_1000_samples_each(epochs: Job) -> None:
    """Seed 001: "with 4 GPUs and 1,000 samples, each GPU processes 250 samples per epoch, ensuring
    parallel processing without data duplication"."""
    for passed in (0, 1):
        shares = [of_epoch(run, passed) for run in epochs.runs]
        assert [len(share) for share in shares] == [250] * 4
        assert {sample for share in shares for sample in share} == set(range(1000))


def test_each_epoch_has_another_partition(epochs: Job) -> None:
    """Seed 001: "`sampler.set_epoch(epoch)` is used, which shuffles the data partitions for each
    epoch without duplication"."""
    for run in epochs.runs:
        first, second = (set(of_epoch(run, passed)) for passed in (0, 1))
        assert first != second


def test_parameters_are_identical_after_each_step(epochs: Job) -> None:
    """Seed 003: "Model parameters (weights & buffers) | Yes - after the all-reduce and optimizer
    step", and "Initial broadcast": they are before the first one, too."""
    trails = [[step.digests for step in run.steps] for run in epochs.runs]
    assert len(trails[0]) == 2 * 16
    assert trails.count(trails[0]) == 4
    begun = [run.optimizers[0].initial_digests for run in epochs.runs]
    assert begun.count(begun[0]) == 4


def test_losses_of_ranks_differ_and_their_mean_is_printed_once(epochs: Job) -> None:
    """Seed 003: "Loss on each rank's private batch | Not necessarily" equal, and "4 losses 0.42,
    0.39, 0.44, 0.41 → global-loss = 0.415"; "one clean number gets logged once"."""
    losses = [[step.losses[0] for step in run.steps] for run in epochs.runs]
    assert len({tuple(own) for own in losses}) == 4
    means = [sum(step) / 4 for step in zip(*losses, strict=True)]
    printed = numbers(epochs, r"Avg Loss: (\S+)")
    assert printed == pytest.approx([sum(means[:16]) / 16, sum(means[16:]) / 16], abs=1e-6)
    assert [run.stdout for run in epochs.runs[1:]] == [""] * 3


def test_two_processes_have_eight_batches_of_which_the_last_has_52(ladder: Ladder) -> None:
    """Seed 003: "Assumptions: 1000 samples, 2 processes, batch_size=64 … Process 0: gets indices
    (500 samples) … Batch 0: (64 samples) … Batch 7: samples [...] (52 samples - last batch
    smaller)"; "Epoch 1 … (different 500 samples)"."""
    job = ladder("02_epochs", PER_RANK).run(2, EPOCHS="2")
    for run in job.runs:
        for passed in (0, 1):
            assert [len(batch) for batch in fetched(run, passed)] == [64] * 7 + [52]
        assert set(of_epoch(run, 0)) != set(of_epoch(run, 1))
    shares = [set(of_epoch(run, 0)) for run in job.runs]
    assert shares[0] | shares[1] == set(range(1000))


@pytest.mark.thorough
def test_eight_ranks_with_64_samples_each_step_over_512(ladder: Ladder) -> None:
    """Seed 001: "with 8 GPUs and a per-GPU batch size of 64, the effective global batch size is
    512"."""
    job = ladder("02_epochs", PER_RANK).run(8, EPOCHS="1")
    assert sum(between_steps(run)[0] for run in job.runs) == 512
    assert len({tuple(step.digests for step in run.steps) for run in job.runs}) == 1


@pytest.mark.thorough
@pytest.mark.parametrize(("batch", "share"), [(32, 8), (128, 32)])
def test_the_batch_of_four_gpus_is_divided(batch: int, share: int, ladder: Ladder) -> None:
    """Seed 002: "Segmentation: 32 (4 GPUs x 8/GPU)", "Detection: 128 (4 GPUs x 32/GPU)"."""
    job = ladder("03_accum", Settings()).run(4, EPOCHS="1", BATCH_SIZE=str(batch))
    assert {len(one) for run in job.runs for one in fetched(run, 0)} == {share}


# ---- Accumulation, learning rates, and one process against four ranks
@dataclass(frozen=True)
class Overlaid:
    """10_full.py in one process with B=32 and on four ranks with B=8, in the same global order."""

    alone: Job
    ranks: Job
    folder: Path
    reduced: tuple[int, ...]  # how often each rank all-reduced gradients


@pytest.fixture(scope="module")
def overlaid(ladder: Ladder) -> Overlaid:
    before, after = ladder("full"), ladder("full", Settings())
    edit(after.script, (WRAP, WRAP + COUNTED))
    told = {"EPOCHS": "2", "BATCH_SIZE": "32", "ACCUM_STEPS": "4"}
    alone, ranks = side_by_side(
        lambda: before.run(0, "--global-order=4", **told), lambda: after.run(4, **told)
    )
    folder = after.script.parent
    reduced = tuple(len((folder / f"reduced.{run.rank}").read_text()) for run in ranks.runs)
    return Overlaid(alone, ranks, folder, reduced)


STEPS = 2 * (625 // 4)  # of 10_full.py: 20,000 samples in batches of 32, in blocks of 4


def test_one_all_reduce_for_each_accumulated_step(overlaid: Overlaid) -> None:
    """Seed 003: "If you accumulate 4 micro-batches with `model.no_sync()`, each rank will still
    launch exactly one all-reduce per logical step"."""
    assert overlaid.reduced == (STEPS,) * 4
    for run in overlaid.ranks.runs:
        assert len(run.steps) == STEPS
        assert len([event for event in run.events if isinstance(event, Backward)]) == 2 * 625


def test_no_sync_on_the_first_three_of_four(overlaid: Overlaid) -> None:
    """Seed 003: "Timeline with `accum_steps = 4`": no_sync() on for micro-batches 0, 1 and 2, off
    for 3, where "all-reduce runs now"."""
    for run in overlaid.ranks.runs:
        forwards = [event for event in run.events if isinstance(event, ForwardRecord)]
        epoch = [event.sync for event in forwards[:625]]
        assert epoch == [step % 4 == 3 for step in range(625)]


def test_one_and_four_ranks_with_the_same_global_batch_overlay(overlaid: Overlaid) -> None:
    """Seed 003, scaling tests: "Run on 1 GPU vs. 4 GPUs with the same global batch size (e.g.
    B=32x1 vs B=8x4). Loss curves should overlay almost exactly"."""
    assert {len(batch) for batch in fetched(overlaid.alone.runs[0], 0)} == {32}
    assert {len(batch) for run in overlaid.ranks.runs for batch in fetched(run, 0)} == {8}
    judges.same_lines(overlaid.alone.runs[0].stdout, overlaid.ranks.runs[0].stdout, 1e-4)


def test_the_training_loss_falls(overlaid: Overlaid) -> None:
    """Seed 003: "Training Loss ↓ Over Time … should steadily decrease within each epoch, and from
    epoch→epoch"."""
    losses = numbers(overlaid.ranks, r"avg-loss (\S+)")
    assert len(losses) == 7
    assert all(after < before for before, after in pairwise(losses)), losses


def test_the_logged_loss_is_of_all_ranks(overlaid: Overlaid) -> None:
    """Seed 003: "loss_det = loss.detach() * k" and `all_reduce(AVG)`, "the mean of the per-rank
    loss for the current macro-batch"."""
    printed = numbers(overlaid.ranks, r"avg-loss (\S+)")
    last = [[run.steps[n].losses[-1] * 4 for run in overlaid.ranks.runs] for n in range(0, 301, 50)]
    assert printed == pytest.approx([sum(own) / 4 for own in last], abs=1e-6)
    assert all(abs(own[0] - sum(own) / 4) > 1e-5 for own in last)  # rank 0's would be seen


def test_gradient_norms_are_sane_and_clipped(overlaid: Overlaid) -> None:
    """Seed 003: "You'll see nonzero norms that roughly stabilize over time. Zero norms everywhere
    imply no backward, NaNs imply blow-up"; and "If the L2-norm of all parameters' grads exceeds
    1.0, scales them down so the norm equals 1.0", of gradients that are averaged already."""
    for run in overlaid.ranks.runs:
        norms = [norm(step.gradients) for step in run.steps]
        assert all(0 < one <= 1 + 1e-5 for one in norms), norms
        assert [step.gradient_digests for step in run.steps] == [
            step.gradient_digests for step in overlaid.ranks.runs[0].steps
        ]


def norm(gradients: tuple[Signature | None, ...]) -> float:
    squares = [float((one**2).sum()) for one in gradients if one is not None]
    return math.sqrt(sum(squares))


def test_the_learning_rate_and_the_effective_batch_grow_with_the_ranks(ladder: Ladder) -> None:
    """Seed 003: "With 4 GPUs and accum = 4 you get `lr = 3e-4 x 4 x 4 = 4.8e-3`", and "B_eff =
    batch_size_per_gpu x world_size x accum_steps": "each rank only sees 64 … an effective batch
    of 1 024 (4 x 256)"."""
    linear = Settings(batch_size="per-rank", lr_scale="linear")
    job = ladder("full", linear).run(4, EPOCHS="1", BATCH_SIZE="64", BASE_LR="3e-4")
    assert len(job.runs[0].steps) == 5000 // 64 // 4
    for run in job.runs:
        assert [step.learning_rates for step in run.steps] == [(4.8e-3,)] * len(run.steps)
    per_step = [sum(step) for step in zip(*map(between_steps, job.runs), strict=True)]
    assert per_step[0] == 1024
    assert "lr 0.004800" in job.runs[0].stdout


def test_the_learning_rate_stays_where_the_global_batch_does(overlaid: Overlaid) -> None:
    """Seed 003: "multiply lr by the same factor you multiplied `B_eff` by", which is 1 here."""
    expected = [step.learning_rates for step in overlaid.alone.runs[0].steps]
    assert expected[0] == (3e-4 * 4,)
    for run in overlaid.ranks.runs:
        assert [step.learning_rates for step in run.steps] == expected


# ---- Checkpoints
def test_a_checkpoint_strips_the_wrapper_and_resumes_in_the_next_epoch(overlaid: Overlaid) -> None:
    """Seed 003: "`model.module.state_dict()` | Strip the DDP wrapper", "If the checkpoint was at
    epoch 3, the script continues at epoch 4", and "make sure all ranks agree"."""
    saved = torch.load(overlaid.folder / "ckpt.pt")
    assert list(saved) == ["model", "optim", "scaler", "epoch", "gstep"]
    assert list(saved["model"]) == ["net1.weight", "net1.bias", "net2.weight", "net2.bias"]
    assert (saved["epoch"], saved["gstep"]) == (1, 300)
    told = {"RESUME": "ckpt.pt", "EPOCHS": "3", "BATCH_SIZE": "32"}
    job = Rung(overlaid.folder / "10_full.py").run(4, **told)
    assert job.runs[0].stdout.splitlines()[0] == "resumed from ckpt.pt  (epoch 2, gs 301)"
    assert numbers(job, r"\| ep (\d+)") == [2, 2, 2]
    assert numbers(job, r"gs (\d+) \|") == [350, 400, 450]
    before = overlaid.ranks.runs[0].steps[300].digests
    assert [run.optimizers[0].initial_digests for run in job.runs] == [before] * 4


# ---- Evaluation, and the other sanity checks
def test_evaluation_improves(ladder: Ladder) -> None:
    """Seed 003: "Watch your validation loss go down and accuracy go up", and not "stays near
    random chance"."""
    job = ladder("08_logging", Settings()).run(4, EPOCHS="4", BASE_LR="1e-3")
    losses, accuracies = (numbers(job, rf"\[eval\].* {what} ([\d.]+)") for what in ("loss", "acc"))
    assert len(losses) == len(accuracies) == 4
    assert all(after < before for before, after in pairwise(losses)), losses
    assert all(after > before for before, after in pairwise(accuracies)), accuracies
    assert accuracies[-1] > 5 * 10


def test_a_hundred_samples_are_overfitted(ladder: Ladder) -> None:
    """Seed 003: "Temporarily change your sampler to use only, say, 100 training samples. The model
    must drive training loss near zero on that small set"."""
    rung = ladder("08_logging")
    subset = "train_ds = torch.utils.data.Subset(train_ds, range(100))"
    edit(rung.script, ("= load_data()\n", f"= load_data()\n    {subset}\n"))
    migrated(rung.script)
    told = {"EPOCHS": "60", "BATCH_SIZE": "20", "BASE_LR": "1e-2", "ACCUM_STEPS": "1"}
    job = rung.run(2, **told)
    losses = numbers(job, r"gs .* loss (\S+)")
    assert {len(set(of_epoch(run, 0))) for run in job.runs} == {50}
    assert losses[0] > 1
    assert losses[-1] < 0.01


# Its gradients are the inputs, and its outputs for inputs of zero are zero: a loss is a target.
WORKED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def evaluate(model, loader, crit):
    model.eval()
    loss_sum, correct, total = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        loss_sum += crit(out, y).item() * y.size(0)
        correct += ((out > 0.5).float() == y).sum().item()
        total += y.size(0)
    model.train()
    print(f"[eval] loss {loss_sum / total:.4f} | acc {100 * correct / total:.2f}%")


def main():
    grads = torch.tensor([[0.1, 0.3, 0.5], [0.2, 0.4, 0.6]])
    dl = DataLoader(TensorDataset(grads, torch.zeros(2, 1)), batch_size=2)
    model = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(model.weight)
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    for x, y in dl:
        loss = (model(x) - y).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    losses = torch.tensor([0.5, 0.4, 0.3, 0.6]).repeat_interleave(32).unsqueeze(1)
    test_dl = DataLoader(TensorDataset(torch.zeros(128, 3), losses), batch_size=32)
    evaluate(model, test_dl, nn.L1Loss())
    wrong = torch.arange(200) // 2 < torch.tensor([50, 25]).repeat(100)   # evens and odds
    labels = wrong.float().unsqueeze(1)
    acc_dl = DataLoader(TensorDataset(torch.zeros(200, 3), labels), batch_size=10)
    evaluate(model, acc_dl, nn.L1Loss())


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The examples that seed 003 works through by hand, on its two ranks."""
    folder = put({"train.py": WORKED}, tmp_path_factory.mktemp("worked") / "project")
    migrated(folder / "train.py")
    return Rung(folder / "train.py").run(2, "--full")


def test_gradients_are_averaged(worked: Job) -> None:
    """Seed 003: "GPU 0 computes: grad_0 = [0.1, 0.3, 0.5], GPU 1 computes: grad_1 = [0.2, 0.4,
    0.6] … Both GPUs now have: grad = [0.15, 0.35, 0.55]"."""
    for run in worked.runs:
        (gradient,) = run.steps[0].gradients
        assert gradient is not None
        assert gradient.tolist() == pytest.approx([0.15, 0.35, 0.55])
        assert run.steps[0].parameters[0].tolist() == pytest.approx([-0.15, -0.35, -0.55])


def test_an_evaluation_is_of_all_samples(worked: Job) -> None:
    """Seed 003: batches of 32 with mean losses 0.5 and 0.3 on GPU 0, 0.4 and 0.6 on GPU 1:
    "57.6 / 128 = 0.45", not "1.8 / 128 = 0.014"; "accuracy = 125/200 = 62.5%", of 50 and 75
    correct in 100 on each."""
    losses, accuracies = numbers(worked, r"loss (\S+)"), numbers(worked, r"acc ([\d.]+)%")
    assert losses[0] == 0.45
    assert accuracies[1] == 62.5
    assert worked.runs[1].stdout == ""
