"""Scripts beside a migrated one that load its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.rules.examples import LEGACY, SINGLE
from ddpify.settings import Settings
from tests.projects import put_example

BESIDE = """import torch
from torch import nn
from torch.nn import DataParallel as Halves
from torch.nn.parallel import DistributedDataParallel


def main():
    net = {made}
    net.load_state_dict(torch.load("net.pth"))
"""


@pytest.mark.parametrize(
    ("example", "made", "lines"),
    [
        pytest.param(LEGACY, "nn.DataParallel(nn.Linear(2, 2))", [9], id="keys-with-a-prefix"),
        pytest.param(LEGACY, "Halves(nn.Linear(2, 2))", [9], id="by-another-name"),
        pytest.param(LEGACY, "DistributedDataParallel(nn.Linear(2, 2))", [], id="of-ranks"),
        pytest.param(LEGACY, "nn.Linear(2, 2)", [], id="loads-the-model"),
        pytest.param(SINGLE, "nn.DataParallel(nn.Linear(2, 2))", [], id="never-had-the-prefix"),
    ],
)
def test_who_loads_into_a_data_parallel_is_told(
    example: object, made: str, lines: list[int], tmp_path: Path
) -> None:
    entry = put_example(example, tmp_path)  # type: ignore[arg-type]
    (tmp_path / "score.py").write_text(BESIDE.format(made=made))
    found = migrate([entry], Settings()).findings
    told = [f.site.span.line for f in found if f.rule == "DDP603" and f.site.path == "score.py"]
    assert told == lines


def test_a_script_that_the_program_imports_from_is_one_too(tmp_path: Path) -> None:
    entry = put_example(LEGACY, tmp_path)
    own = "\n\ndef half(x):\n    return x / 2\n"
    (tmp_path / "score.py").write_text(BESIDE.format(made="nn.DataParallel(nn.Linear(2, 2))") + own)
    entry.write_text(f"from score import half\n{entry.read_text()}")
    found = [f for f in migrate([entry], Settings()).findings if f.rule == "DDP603"]
    told = [f.site for f in found if not f.fix]
    assert [(site.path, site.span.line) for site in told] == [("score.py", 9)]
