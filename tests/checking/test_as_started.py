"""What torchrun would do is said of programs that may be started by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify import cli
from tests.lint.cases import all_cases
from tests.projects import put

PROGRAM = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
dist.init_process_group("nccl")
model = DDP(nn.Linear(2, 1).cuda(), device_ids=[args.local_rank])
model(torch.randn(4, 2).cuda()).mean().backward()
dist.destroy_process_group()
"""
OLD = "python -m torch.distributed.launch --nproc_per_node 2 main.py\n"
WITHOUT = OLD.replace("main.py", "--use_env main.py")
OTHER = OLD.replace("main.py", "other.py")
UNSEEN = OLD.replace("main.py", "$PROGRAM")
NEW = "torchrun --nproc-per-node 2 main.py\n"


@pytest.mark.parametrize(
    ("started", "said"),
    [
        pytest.param({}, ["error"], id="by-nobody-knows-what"),
        pytest.param({"run.sh": NEW}, ["error"], id="by-torchrun"),
        pytest.param({"run.sh": OLD}, [], id="by-the-old-launcher"),
        pytest.param({"run.sh": OLD, "new.sh": NEW}, ["error"], id="by-both"),
        pytest.param(
            {"run.sh": WITHOUT}, ["note"], id="by-the-old-launcher-which-is-told-not-to-pass-it"
        ),
        pytest.param({"run.sh": OTHER, "other.py": ""}, ["note"], id="another-by-the-old-launcher"),
        pytest.param({"run.sh": UNSEEN}, [], id="perhaps-by-the-old-launcher"),
    ],
)
def test_the_launchers_option_is_missed_by_torchrun_alone(
    started: dict[str, str],
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put({"main.py": PROGRAM, **started}, tmp_path)
    monkeypatch.chdir(tmp_path)
    cli.main(["check", ".", "--no-cache", "--output-format", "json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [one["severity"] for one in found if one["rule"] == "DDP107"] == said


def test_a_start_that_is_added_is_seen_by_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(one for one in all_cases() if one.name == "launch/p02_bad_started_as_one")
    monkeypatch.chdir(case.put(tmp_path))
    plain = (tmp_path / "README.md").read_text()
    several = "torchrun --nproc_per_node 2 tools/infer.py\n"

    def said(*named: str) -> set[str]:
        cli.main(["check", *(named or ["."]), "--output-format", "json"])
        return {one["severity"] for one in json.loads(capsys.readouterr().out)["findings"]}

    assert said() == {"note"}
    for path, text in {"job.pbs": several, "README.md": f"```bash\n{several}```\n"}.items():
        put({path: text}, tmp_path)
        assert said() == {"error", "warning"}
        put({path: plain if path == "README.md" else ""}, tmp_path)
        assert said() == {"note"}
    assert said(".", "--assume-distributed") >= {"error", "warning"}
    assert said("tools/infer.py") == {"error", "warning"}  # without the file that says so
