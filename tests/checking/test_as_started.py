"""What torchrun would do is said of programs that may be started by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify import cli
from ddpify.lint import lint
from ddpify.rules.base import Severity
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


STEP = "\n    torch.nn.Linear(2, 1)(torch.randn(4, 2)).mean().backward()"
MAY = 'if "RANK" in os.environ:\n        dist.init_process_group("gloo")'
TRAINER = "from transformers import Trainer, TrainingArguments"
ARGUMENTS = 'args=TrainingArguments("out", fsdp="full_shard")'
WRITTEN = {
    "deepspeed": (
        "import deepspeed",
        "deepspeed.init_distributed()\n    if dist.get_rank() == 0:\n        dist.barrier()",
    ),
    "deepspeeds-engine": ("import deepspeed", "deepspeed.initialize(torch.nn.Linear(2, 1))"),
    "a-command-line": ("from lightning.pytorch.cli import LightningCLI", "LightningCLI()"),
    "a-trainer": (TRAINER, f"Trainer({ARGUMENTS}).train()"),
    "an-own-trainer": (
        f"{TRAINER}\n\n\nclass Own(Trainer):\n    pass\n",
        f"Own({ARGUMENTS}).train()",
    ),
    "a-sampler": (
        "from torch.utils.data.distributed import DistributedSampler",
        f"{MAY}\n    DistributedSampler([1, 2], 2, 0){STEP}",
    ),
    "collectives": ("", f"{MAY}\n        dist.all_reduce(torch.ones(1)){STEP}"),
    "a-group-joined-once": (
        "",
        'if not dist.is_initialized():\n        dist.init_process_group("gloo")',
    ),
    "a-return-behind-the-group": (
        "",
        'dist.init_process_group("gloo")\n    if not os.path.exists("data"):\n        return',
    ),
    "a-group-for-gpus": (
        "",
        'if torch.cuda.is_available():\n        dist.init_process_group("nccl")',
    ),
}
STARTING = """torch.multiprocessing.spawn(join) Process(target=join) run("--nproc_per_node=2")
multiprocessing.start_processes(join) submitit.submit(join) launch(join) notebook_launcher(join)
run(join,nprocs=2)
run([sys.executable]) run("torchrun") run("python3") run("mpirun") run("srun")"""
WRITTEN |= {text: ("", f"{MAY}\n    {text}") for text in STARTING.split()}
WRITTEN["ray"] = ("import ray", MAY)
ALONE = {
    "a-group-if-told": ("", MAY),
    "a-group-behind-a-return": ("", "join()"),
}
SCRIPT = """\
import os

import torch
import torch.distributed as dist
{}


def join():
    if "RANK" not in os.environ:
        return
    dist.init_process_group("gloo")


def main():
    {}
    torch.save(torch.randn(2), "numbers.pt")


main()
"""


@pytest.mark.parametrize(("imports", "body"), WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_for_several_is_not_taken_for_one(
    imports: str, body: str, tmp_path: Path
) -> None:
    assert severities(tmp_path, SCRIPT.format(imports, body)) - {Severity.NOTE}


@pytest.mark.parametrize(("imports", "body"), ALONE.values(), ids=ALONE)
def test_what_may_be_one_is_taken_for_one(imports: str, body: str, tmp_path: Path) -> None:
    assert severities(tmp_path, SCRIPT.format(imports, body)) == {Severity.NOTE}


def severities(folder: Path, script: str) -> set[Severity]:
    """How bad it is what is said of a program that README starts with plain python."""
    put({"main.py": script, "README.md": "```bash\npython main.py\n```\n"}, folder)
    found = lint(folder, [folder / "main.py"], launchers=[folder / "README.md"]).findings
    return {one.severity for one in found}
