"""Several processes find what one finds."""

from __future__ import annotations

from pathlib import Path

from ddpify.lint import FEW, lint
from tests.lint.cases import all_cases

# `adapt` is never reached with a rank that tells the others apart: its caller gives it 8.
CALLER = """
import torch.distributed as dist
from z_shared import adapt


def train(model):
    dist.init_process_group("nccl")
    adapt(model, 8)
    dist.destroy_process_group()
"""
CALLED = """
import torch.distributed as dist


def adapt(model, rank):
    if rank == 1:
        dist.all_reduce(model)
"""
OTHER = "import torch.distributed as dist\n\n\ndef reduce_{0}(x):\n    dist.all_reduce(x)\n"


def test_a_function_that_another_process_enters_is_not_judged_alone(tmp_path: Path) -> None:
    texts = {"a_train.py": CALLER, "z_shared.py": CALLED}
    texts |= {f"m{number}.py": OTHER.format(number) for number in range(FEW)}
    files = _write(tmp_path, texts)
    assert lint(tmp_path, files).findings == ()
    for jobs in (2, 3):
        assert lint(tmp_path, files, jobs=jobs).findings == ()
    alone = lint(tmp_path, [tmp_path / "z_shared.py"]).findings
    assert [one.rule for one in alone] == ["DDP801"]  # the same place, where nobody calls it


def test_the_labelled_programs_in_one_project(tmp_path: Path) -> None:
    texts = {
        f"p{number}/{path}": text
        for number, case in enumerate(all_cases()[:400:4])
        for path, text in case.files
        if path.endswith(".py")
    }
    files = _write(tmp_path, texts)
    one = lint(tmp_path, files).findings
    assert len(files) > FEW
    assert len(one) > 20
    assert lint(tmp_path, files, jobs=2).findings == one


def _write(folder: Path, texts: dict[str, str]) -> list[Path]:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return [folder / path for path in texts]
