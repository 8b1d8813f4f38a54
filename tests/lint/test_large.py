"""In large programs only what proved right on public ones is more than a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.weighing import LARGE

_PARTS = "\n".join(f"def part_{number}(x):\n    dist.all_reduce(x)\n\n" for number in range(LARGE + 1))
_CALLS = "\n".join(f"part_{number}(model.weight.detach())" for number in range(LARGE + 1))
_BEGIN = f"""\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

{_PARTS}
dist.init_process_group("gloo")
model = torch.nn.Linear(2, 1)
{_CALLS}
"""
_TRAINS = """\
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
wrapped(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""
_MEETS = "if dist.get_rank() == 0:\n    dist.barrier()\n"
_SAVES = 'torch.save(model.state_dict(), "model.pt")\n'
_LOGS = 'with open("losses.txt", "w") as file:\n    file.write(str(dist.get_rank()))\n'


def _said(folder: Path, text: str, strict: bool = False) -> set[tuple[str, str]]:
    file = folder / "main.py"
    file.write_text(text)
    found = lint(folder, [file], strict=strict).findings
    return {(one.rule, one.severity.value) for one in found if one.rule != "DDP102"}


@pytest.mark.parametrize(
    ("rest", "code", "severity"),
    [
        pytest.param(_MEETS, "DDP801", "note", id="rarely-right"),
        pytest.param(_SAVES, "DDP601", "warning", id="often-right"),
        pytest.param(_LOGS, "DDP502", "note", id="a-tool-writes"),
        pytest.param(_TRAINS + _LOGS, "DDP502", "error", id="training-writes"),
    ],
)
def test_what_is_said_of_large_programs(
    rest: str, code: str, severity: str, tmp_path: Path
) -> None:
    assert (code, severity) in _said(tmp_path, _BEGIN + rest)


def test_a_small_program_is_proven(tmp_path: Path) -> None:
    small = _BEGIN.replace("part_0(model.weight.detach())\n", "").replace("\npart_1(model.weight.detach())", "")
    assert ("DDP801", "error") in _said(tmp_path, small + _MEETS)


def test_strictly_no_program_is_large(tmp_path: Path) -> None:
    assert ("DDP801", "error") in _said(tmp_path, _BEGIN + _MEETS, strict=True)


def test_what_is_more_in_one_program_is_said_so(tmp_path: Path) -> None:
    """A helper that a small and a large program call."""
    (tmp_path / "helper.py").write_text(
        f"import torch.distributed as dist\n\n\ndef meet():\n{_indented(_MEETS)}"
    )
    use = "from helper import meet\n{}\nmeet()\n"
    (tmp_path / "a_large.py").write_text(use.format(_BEGIN))
    (tmp_path / "b_small.py").write_text(
        use.format('import torch.distributed as dist\ndist.init_process_group("gloo")')
    )
    files = [tmp_path / name for name in ("a_large.py", "b_small.py", "helper.py")]
    found = {one.site.path: one.severity.value for one in lint(tmp_path, files).findings}
    assert found["helper.py"] == "error"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
