"""Where nothing is seen to open a session, what is found is a note: who runs it is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.rules.base import Severity

_ALONE_ON_A_RANK = ("DDP801", "DDP806")  # one rank enters a collective
_HEAD = """\
import torch
import torch.distributed as dist
"""
_ALONE = f"""{_HEAD}

def save(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
        dist.barrier()
"""
_OPENS = _ALONE.replace("    if dist", '    dist.init_process_group("gloo")\n    if dist', 1)
_CALLED = f"{_ALONE}\n\nsave(torch.nn.Linear(1, 1), 'a.pt')\n"
_OF_HELPERS = "from accelerate.utils import set_seed\n" + _ALONE.replace(
    "    if dist", "    set_seed(1)\n    if dist"
)
_ACCELERATED = """\
import torch
from accelerate import Accelerator


def save(path):
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    if accelerator.is_main_process:
        torch.save(accelerator.get_state_dict(model), path)
        accelerator.wait_for_everyone()
"""
_HOOK = """\
import lightning.pytorch as pl


class Net(pl.LightningModule):
    def on_train_epoch_end(self):
        if self.trainer.is_global_zero:
            self.trainer.strategy.barrier()
"""
_OWN_HOOK = """\
import torch.distributed as dist
from transformers import Trainer


class Saving(Trainer):
    def _save_checkpoint(self, model, trial):
        if self.is_world_process_zero():
            dist.barrier()
"""
_CALLBACK = (
    _OWN_HOOK.replace("Trainer", "TrainerCallback")
    .replace("_save_checkpoint(self, model, trial", "on_save(self, args, state, control")
    .replace("self.is_world_process_zero()", "state.is_world_process_zero")
)
_OWN_METHOD = _OWN_HOOK.replace("_save_checkpoint(self, model, trial)", "export(self)")
_TRAINS = f"{_OWN_METHOD}\n\ndef on_each_rank(args):\n    Saving(None, args).export()\n"
_USES = """\
import torch
import torch.distributed as dist
from main import save

dist.init_process_group("gloo")
save(torch.nn.Linear(1, 1), "a.pt")
"""


def _severities(folder: Path, texts: dict[str, str]) -> set[Severity]:
    files = [folder / name for name in texts]
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    return {one.severity for one in lint(folder, files).findings if one.rule in _ALONE_ON_A_RANK}


@pytest.mark.parametrize(
    "text", [_ALONE, _CALLED, _OF_HELPERS, _OWN_METHOD], ids=["alone", "script", "helpers", "own"]
)
def test_without_a_session_it_is_a_note(text: str, tmp_path: Path) -> None:
    assert _severities(tmp_path, {"main.py": text}) == {Severity.NOTE}


@pytest.mark.parametrize("text", [_OPENS, _ACCELERATED, _HOOK, _OWN_HOOK, _CALLBACK, _TRAINS])
def test_a_function_that_opens_it_or_that_a_trainer_calls_errs(text: str, tmp_path: Path) -> None:
    assert _severities(tmp_path, {"main.py": text}) == {Severity.ERROR}


def test_so_does_one_that_is_called_within_the_session_of_a_script(tmp_path: Path) -> None:
    texts = {"main.py": _ALONE, "train.py": _USES}
    assert _severities(tmp_path, texts) == {Severity.ERROR}


def test_what_pytest_calls_opens_one_or_errs_nowhere(tmp_path: Path) -> None:
    asked = _ACCELERATED.replace("Accelerator()", "Accelerator()\n    torch.distributed.barrier()")
    assert _severities(tmp_path, {"test_it.py": asked}) == {Severity.NOTE}
    assert _severities(tmp_path, {"test_it.py": _OPENS}) == {Severity.ERROR}


def test_what_is_taken_to_be_distributed_errs(tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(_ALONE)
    found = lint(tmp_path, [file], assume_distributed=True).findings
    assert Severity.ERROR in {one.severity for one in found}


def test_what_one_program_proves_is_no_note_because_another_comes_first(tmp_path: Path) -> None:
    called = _USES.replace('dist.init_process_group("gloo")\n', "")
    texts = {"main.py": _ALONE, "a.py": called, "b.py": _USES}
    assert _severities(tmp_path, texts) == {Severity.ERROR}


_STEPS = "".join(
    f"def part_{n}(x):\n    return x + dist.get_world_size() * {n}\n\n\n" for n in range(40)
)
_LOOP = """\
def main(parts):
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(100):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        if not torch.isfinite(loss):
            LEAVES
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
CALLS    dist.destroy_process_group()


main(3)
"""


@pytest.mark.parametrize(
    ("functions", "leaves", "severity"),
    [(4, "break", "error"), (40, "break", "note"), (40, "raise SystemExit(0)", "error")],
)
def test_a_decision_of_a_large_program_is_proven_of_a_rank_that_ends(
    tmp_path: Path, functions: int, leaves: str, severity: str
) -> None:
    """What each rank decides for itself, where much is read, was mostly what all decide alike."""
    calls = "".join(f"    part_{n}(parts)\n" for n in range(functions))
    text = _HEAD + "\n\n" + _STEPS + _LOOP.replace("LEAVES", leaves).replace("CALLS", calls)
    (tmp_path / "main.py").write_text(text)
    found = [one for one in lint(tmp_path, [tmp_path / "main.py"]).findings if one.rule == "DDP803"]
    assert [one.severity.value for one in found] == [severity]
