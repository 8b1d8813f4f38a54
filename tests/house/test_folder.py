"""`ddpify migrate FOLDER` finds the scripts that train, and leaves the others as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from tests.projects import VISION, put, put_fixture

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
PREDICT = """\
import torch
from torch import nn

if __name__ == "__main__":
    x = torch.randn(1, 5, requires_grad=True)
    nn.Linear(5, 1)(x).sum().backward()
    print(x.grad)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return put({"train.py": TRAIN, "again.py": TRAIN, "predict.py": PREDICT}, tmp_path)


def test_all_scripts_that_train_are_migrated(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["migrate", str(project), "--inplace"]) == cli.CLEAN
    assert "predict.py:1: does not train: left as it is" in capsys.readouterr().out
    assert (project / "predict.py").read_text() == PREDICT
    for name in ("train.py", "again.py"):
        assert "setup_distributed()" in (project / name).read_text()


def test_a_script_that_is_named_must_train(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "predict.py"
    assert cli.main(["migrate", str(script)]) == cli.FAILED
    assert "predict.py: no training loop found" in capsys.readouterr().err


def test_one_script_after_the_other_gives_what_all_at_once_give(tmp_path: Path) -> None:
    """The second and third find the helpers and the shared modules as the first left them."""
    at_once, each = (put_fixture("vision-detection", tmp_path / n).parent for n in ("a", "b"))
    assert cli.main(["migrate", str(at_once), "--inplace"]) == cli.CLEAN
    for task in VISION:
        assert cli.main(["migrate", str(each / f"main_{task}.py"), "--inplace"]) == cli.CLEAN
    assert contents(each) == contents(at_once)


@pytest.mark.parametrize(
    "launcher", ["scripts/run_detection.sh", "scripts/slurm_segmentation.sbatch"]
)
def test_a_launcher_names_its_script(launcher: str, tmp_path: Path) -> None:
    project = put_fixture("vision-detection", tmp_path / "project").parent
    before = contents(project)
    assert cli.main(["migrate", str(project / launcher), "--inplace"]) == cli.CLEAN
    after = contents(project)
    task = Path(launcher).stem.partition("_")[2]
    changed = {path for path in after if after[path] != before.get(path)}
    mains = {path for path in changed if path.startswith("main_")}
    assert mains == {f"main_{task}.py"}
    assert launcher in changed


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and ".ddpify" not in p.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
