"""`ddpify plan` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify import cli
from tests.advice.programs import PARALLEL, TRAIN, changed
from tests.projects import put

NO_TORCH = """
import sys
for name in ("torch", "numpy", "jinja2", "psutil"):
    sys.modules[name] = None
from ddpify.cli import main
sys.exit(main(sys.argv[1:]))
"""
# Six blocks of two layers between a first and a last layer.
STACKED = changed(
    TRAIN,
    (
        "SEEN = 0\n",
        """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(512, 512)
        self.down = nn.Linear(512, 512)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 512)
        self.layers = nn.ModuleList([Block() for _ in range(6)])
        self.last = nn.Linear(512, 5)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)
""",
    ),
    ("nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))", "Deep()"),
    (
        "optim.SGD(model.parameters(), lr=0.1, momentum=args.momentum)",
        "optim.Adam(model.parameters())",
    ),
)
RUN = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1,2,3 python train.py --batch-size 64\n"


def line(what: str) -> int:
    return PARALLEL[: PARALLEL.index(what)].count("\n") + 1


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put({"train.py": PARALLEL, "run.sh": RUN}, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_text_says_all_of_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    assert cli.main(["plan", "train.py"]) == cli.CLEAN
    said = capsys.readouterr().out
    for expected in (
        "Plan: train.py under torchrun (nothing is written)",
        "ddp_utils.py (new)",
        "DDP302      1  nn.DataParallel would spread each process over all GPUs",
        "run.sh:2: passes --batch-size 64; lists 4 GPUs",
        "run.sh:2       4     64         4x16           64            16",
        f"nn.DataParallel (train.py:{line('DataParallel')}) goes",
        f"S of SGD (train.py:{line('SGD')}) = 1 x T (momentum from --momentum (default 0.9,",
        "learning rate: as it is",
        "before: first GPU  before: others  after: every GPU",
        "kept for backward              A(b1)           A(b2)              A(b)",
    ):
        assert expected in said
    assert "  sum " not in said, "no bytes without a measurement"
    assert before == {path.name: path.read_bytes() for path in project.iterdir()}


def test_a_narrow_terminal_has_narrow_tables(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(["plan", "--no-color", "train.py"]) == cli.CLEAN
    said = capsys.readouterr().out
    done = said[: said.index("Memory of")].splitlines()
    assert max(map(len, done)) <= 60
    assert "DDP302" in said


def test_json_holds_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "train.py", "--format=json", "--nproc=2"]) == cli.CLEAN
    document = json.loads(capsys.readouterr().out)
    (entry,) = document["entries"]
    (row,) = entry["rows"]
    assert (row["ranks"], row["batch"], row["before"], row["after"]) == (2, 64, [32, 32], 32)
    assert entry["origins"][0]["site"] == "train.py:12"
    assert entry["memory_sums"] is None
    assert {change["path"] for change in document["changes"]} >= {"train.py", "run.sh"}
    assert all(change["reasons"] for change in document["changes"])


def test_markdown_has_tables(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "run.sh", "--format=markdown"]) == cli.CLEAN
    said = capsys.readouterr().out
    assert said.startswith("## ddpify plan: train.py under torchrun")
    assert "| run.sh:2 | 4 | 64 | 4x16 | 64 | 16 |" in said
    assert "|  | before: first GPU | before: others | after: every GPU |" in said


@pytest.mark.training
def test_a_measured_plan_has_bytes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "train.py", "--measure", "--format=json", "--", "--batch-size=16"]
    assert cli.main(arguments) == cli.CLEAN
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    (row,) = entry["rows"]
    assert (row["batch"], row["ranks"], row["steps_before"], row["steps_after"]) == (16, 4, 3, 3)
    parameters, inputs, saved, outputs, loss = 1300, 768, 1280, 320, 324  # see test_measure.py
    first = 4 * parameters + inputs + saved // 4 + outputs + loss
    after = 4 * parameters + (inputs + saved + outputs + loss) // 4
    assert entry["memory_sums"] == {"first": first, "others": 2 * parameters + 512, "after": after}
    assert entry["fits"][0]["ranks"] == 4
    assert entry["measured"]["command"] == "python train.py --batch-size=16"


@pytest.mark.training
def test_auto_decides_by_the_memory_of_a_gpu(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "train.py").write_text(STACKED)
    for memory, strategy, ranks in (("1", "ddp", None), (f"{30 / 1024}", "fsdp", 4)):
        arguments = ["plan", "train.py", "--strategy=auto", f"--gpu-memory={memory}"]
        assert cli.main([*arguments, "--measure", "--format=json"]) == cli.CLEAN
        document = json.loads(capsys.readouterr().out)
        (entry,) = document["entries"]
        found = entry["recommendation"]
        assert (found["strategy"], found["ranks"]) == (strategy, ranks)
        assert entry["shards"] is (strategy == "fsdp")
        assert entry["sharding"]["blocks"] == [["Deep", "layers"]]
        block = 4 * (512 * 512 + 512) * 2
        sizes = {one["path"]: one["size"] for one in entry["units"]}
        ends = 4 * (512 * 10 + 512 + 5 * 512 + 5)
        assert sizes == {"": ends, **{f"layers.{n}": block for n in range(6)}}
        eight = next(one for one in entry["scales"] if one["ranks"] == 8)
        whole = sum(sizes.values())
        assert eight["ddp"]["sent"] == [
            {"what": "all-reduced", "cell": {"formula": "1.75 T", "size": round(1.75 * whole)}}
        ]
        first, last = 64 * 10 + 64, 512 + 1  # of 5 rows a rank has one, or none
        assert eight["fsdp"]["parameters"]["size"] == block * 6 // 8 + 4 * (first + last)


def test_auto_without_a_run_is_not_decided(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", "train.py", "--strategy=auto"]) == cli.CLEAN
    said = capsys.readouterr().out
    for expected in (
        "Recommendation:\n  not decided\n",
        "with SGD ddp holds 16 bytes for each float32 parameter",
        "--gpu-memory GIB says it",
        "1,024           P          G          S        T      1.998 T",
        "1,024      P/1024     G/1024     S/1024",
        "one unit: no blocks were found",
    ):
        assert expected in said


def test_auto_says_why_there_is_no_fsdp(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    penalty = "loss = criterion(outputs, targets) + sum(p.norm() for p in model.parameters())"
    text = changed(PARALLEL, ("loss = criterion(outputs, targets)", penalty))
    (project / "train.py").write_text(text)
    assert cli.main(["plan", "train.py", "--strategy=fsdp"]) == cli.FAILED
    refusal = capsys.readouterr().err.removeprefix("ddpify: ").strip()
    assert cli.main(["plan", "train.py", "--strategy=auto"]) == cli.CLEAN
    said = " ".join(capsys.readouterr().out.split())
    assert f"fsdp is refused here: {' '.join(refusal.split())}" in said


@pytest.mark.parametrize("command", ["migrate", "diff", "verify"])
def test_auto_is_for_plan(project: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert cli.main([command, "train.py", "--strategy=auto"]) == cli.FAILED
    assert "auto is for `ddpify plan`, which recommends ddp or fsdp" in capsys.readouterr().err


def test_the_memory_of_a_gpu_is_for_auto(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "train.py", "--gpu-memory=8"]) == cli.FAILED
    assert capsys.readouterr().err.startswith("ddpify: --gpu-memory goes with --strategy auto")


def test_options_of_shards_go_with_auto(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text('[tool.ddpify]\nsync-bn = "off"\n')
    arguments = ["plan", "train.py", "--strategy=auto", "--fsdp-bf16", "--fsdp-hybrid"]
    assert cli.main([*arguments, "--format=json"]) == cli.CLEAN
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["sharding"]["bf16"] is True
    assert entry["sharding"]["hybrid"] == 4, "the GPUs that run.sh lists"
    assert entry["shards"] is False


def test_what_the_tables_do_not_count_is_said(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for reshard in ("--fsdp-reshard", "--no-fsdp-reshard"):
        assert cli.main(["plan", "train.py", "--strategy=fsdp", reshard]) == cli.CLEAN
        said[reshard] = "no-fsdp-reshard: the tables are of blocks" in capsys.readouterr().out
    assert said == {"--fsdp-reshard": False, "--no-fsdp-reshard": True}


def test_it_needs_the_base_installation_only(project: Path) -> None:
    command = [sys.executable, "-c", NO_TORCH, "plan", "train.py"]
    for more in ([], ["--strategy=auto"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([*command, "--measure"], capture_output=True, text=True, check=False)
    assert done.returncode == cli.FAILED
    assert done.stderr.startswith("ddpify: --measure needs ")
    assert done.stderr.endswith("pip install 'ddpify[verify]'\n")


def test_a_refusal_is_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = changed(TRAIN, ("loss.backward()", "pass"))
    (project / "train.py").write_text(text)
    assert cli.main(["plan", "train.py", "--measure"]) == cli.FAILED
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "no training loop found" in said.err
    assert said.out == ""


def test_a_folder_of_several_is_planned_but_not_measured(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "second.py").write_text(TRAIN)
    assert cli.main(["plan", "."]) == cli.CLEAN
    said = capsys.readouterr().out
    assert "Batch size of second.py:" in said
    assert "Batch size of train.py:" in said
    assert cli.main(["plan", ".", "--measure"]) == cli.FAILED
    assert "--measure needs one script" in capsys.readouterr().err
