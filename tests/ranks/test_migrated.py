"""The two-rank reading of programs that ddpify migrated: whatever their copy of the helpers is
called, the session, the wrapper and the way of the model through both are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import vendor
from ddpify.lint import lint
from ddpify.names import EARLIER_NAMES, RUNTIME_NAMES
from ddpify.ranks.read import read
from ddpify.ranks.run import Run

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from {module} import cleanup_distributed, distributed_sampler, is_main_process, set_epoch
from {module} import barrier, setup_distributed, unwrap, wrap_model


def main(data):
    setup_distributed()
    model = wrap_model(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = distributed_sampler(data, shuffle=True)
    loader = DataLoader(data, 8, shuffle=sampler is None, sampler=sampler)
    for epoch in range(9):
        set_epoch(loader, epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if is_main_process():
            print(epoch){more}
    cleanup_distributed()


if __name__ == "__main__":
    main(open("data").read())
"""
NAMES = ("ddp_utils", "core.ddp_utils", "helpers", "tools.several.ranks", "ddpify.runtime")


def put(folder: Path, module: str, more: str = "") -> list[Path]:
    """The program in a folder, with a copy of the helpers unless it imports the installed ones."""
    (folder / "requirements.txt").write_text("torch\n")
    script = folder / "train.py"
    script.write_text(PROGRAM.format(module=module, more=more))
    if module == "ddpify.runtime":
        return [script]
    copy = folder.joinpath(*module.split(".")).with_suffix(".py")
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(vendor.core_text({*RUNTIME_NAMES, *dict(EARLIER_NAMES)}))
    return [script, copy]


def only(runs: list[Run]) -> Run:
    (run,) = runs
    return run


@pytest.mark.parametrize("module", NAMES)
def test_a_migrated_program_is_seen_as_distributed(tmp_path: Path, module: str) -> None:
    run = only(read(tmp_path, put(tmp_path, module)))  # and the helpers start no run
    assert run.distributed
    assert run.session is not None
    backward = next(run.methods("backward"))
    model = next(run.named("torch.nn.parallel.DistributedDataParallel"))
    assert backward.receiver is not None
    assert any(thing.call is model for thing in backward.receiver.sources())


@pytest.mark.parametrize("module", NAMES)
def test_what_ranks_do_apart_is_found(tmp_path: Path, module: str) -> None:
    files = put(tmp_path, module, more="\n            barrier()")
    (found,) = lint(tmp_path, files).findings
    assert (found.site.path, found.rule) == ("train.py", "DDP801")


@pytest.mark.parametrize("module", NAMES)
def test_a_right_one_is_clean(tmp_path: Path, module: str) -> None:
    assert lint(tmp_path, put(tmp_path, module)).findings == ()


@pytest.mark.parametrize("module", NAMES)
def test_a_fix_calls_the_helpers_that_the_program_has(tmp_path: Path, module: str) -> None:
    files = put(tmp_path, module)
    text = files[0].read_text().replace("        set_epoch(loader, epoch)\n", "")
    files[0].write_text(text)
    (found,) = lint(tmp_path, files).findings
    (edit,) = found.fix
    assert (edit.code, edit.imports[0].module) == ("begin_epoch(loader, epoch)", module)


def without_session(tmp_path: Path) -> list[Path]:
    """The program that nothing prepares for several processes, though it wraps its model."""
    files = put(tmp_path, "ddp_utils")
    text = files[0].read_text().replace("    setup_distributed()\n", "")
    files[0].write_text(text)
    return files


def test_helpers_without_a_session_are_reported(tmp_path: Path) -> None:
    files = without_session(tmp_path)
    assert [one.rule for one in lint(tmp_path, files).findings] == ["DDP101"]


def test_a_script_that_calls_no_helper_itself_is_one_process(tmp_path: Path) -> None:
    learn, copy = without_session(tmp_path)
    learn.rename(tmp_path / "learn.py")
    script = tmp_path / "alone.py"
    script.write_text("from learn import main\n\nmain([1])\n")
    runs = read(tmp_path, [script, copy])
    assert ("alone.py", False) in [(run.start, run.distributed) for run in runs]
