"""What is set outside of hooks: the Trainer's devices, how it is started, what is agreed on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.lightning import project
from tests.lightning.runs import Run, read_json, train
from tests.projects import write
from tests.support.torchrun import EXIT_RACE

TRAINER = "devices=1, max_epochs=2"
ALL = 'devices=environ.get("LOCAL_WORLD_SIZE", "auto")'
NUMBER = 'int(environ.get("LOCAL_WORLD_SIZE") or cuda.device_count() or 1)'
SEED = "    L.seed_everything(0)\n"


def put(folder: Path, *changes: tuple[str, str], **files: str) -> Path:
    script = project.put(folder, *changes)
    for name, content in files.items():
        (folder / name).write_text(content)
    return script


def written(start: Path, **settings: Any) -> dict[str, str]:
    found = migrate((start,), Settings(**settings))
    assert not found.refusals, found.refusals
    return {change.path: change.after.decode() for change in found.changes}


def of(found: Outcome, rule: str) -> list[tuple[str, bool]]:
    return [(str(one.site), bool(one.fix)) for one in found.findings if one.rule == rule]


@pytest.mark.parametrize("given", ["1", "[0]", '"1"'])
def test_a_trainer_of_one_device_has_all(given: str, tmp_path: Path) -> None:
    text = written(put(tmp_path, (TRAINER, f"devices={given}, max_epochs=2")))["train.py"]
    assert ALL in text
    assert "from os import environ" in text


@pytest.mark.parametrize("given", ["2", "[0, 1]", '"auto"', "-1", "[3]"])
def test_what_names_other_devices_stays(given: str, tmp_path: Path) -> None:
    start = put(tmp_path, (TRAINER, f"devices={given}, max_epochs=2"))
    assert f"devices={given}" in written(start)["train.py"]


def test_an_alternative_is_changed_where_it_stands(tmp_path: Path) -> None:
    given = "devices=int(sys.argv[2]) if len(sys.argv) > 2 else 1, max_epochs=2"
    text = written(put(tmp_path, (TRAINER, given)))["train.py"]
    assert 'if len(sys.argv) > 2 else environ.get("LOCAL_WORLD_SIZE", "auto")' in text


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("    n = 1\n", "n"),
        ("    n: int = 1\n", "n"),
        ("    args = Options()\n", "args.devices"),
    ],
)
def test_a_number_is_changed_where_it_is_written(made: str, read: str, tmp_path: Path) -> None:
    options = (
        "@dataclass\nclass Options:\n    name: str = ''\n    devices: int = 1\n\n\nclass Rows(",
        ("import json\n", "import json\nfrom dataclasses import dataclass\n"),
    )
    start = put(
        tmp_path,
        ('accelerator="cpu", ' + TRAINER, f"devices={read}, max_epochs=2"),
        (SEED, SEED + made),
        ("class Rows(", options[0]),
        options[1],
    )
    text = written(start)["train.py"]
    assert text.count(NUMBER) == 1
    assert f"devices={read}" in text


def test_the_command_line_wins(tmp_path: Path) -> None:
    """The default is a number, as its type says."""
    options = (
        "    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--num-devices", type=int, default=1)\n'
        "    args, _ = parser.parse_known_args()\n"
    )
    start = put(
        tmp_path,
        ('accelerator="cpu", ' + TRAINER, "devices=args.num_devices, max_epochs=2"),
        (SEED, SEED + options),
        ("import json\n", "import argparse\nimport json\n"),
    )
    text = written(start)["train.py"]
    assert f"default={NUMBER}" in text
    assert "type=int" in text


def test_configs_of_one_family_are_changed_all_of_them(tmp_path: Path) -> None:
    configs = (
        "class Base:\n    devices: int = 1\n\n\nclass Small(Base):\n    width = 1\n\n\n"
        "class Large(Base):\n    devices: int = 1\n\n\nclass Many(Base):\n    devices: int = 8\n"
    )
    start = put(
        tmp_path,
        ('accelerator="cpu", ' + TRAINER, "devices=chosen().devices, max_epochs=2"),
        ("class Rows(", "def chosen():\n    return configs.Large()\n\n\nclass Rows("),
        ("import json\n", "import json\n\nimport configs\n"),
        **{"configs.py": configs},
    )
    text = written(start)["configs.py"]
    assert text.count(f"devices: int = {NUMBER}") == 2
    assert "devices: int = 8" in text
    assert "    width = 1" in text


def test_what_may_be_another_number_is_said(tmp_path: Path) -> None:
    """Two classes that have nothing to do with each other have a field of this name."""
    configs = "class One:\n    devices: int = 1\n\n\nclass Other:\n    devices: int = 1\n"
    start = put(
        tmp_path,
        ('accelerator="cpu", ' + TRAINER, "devices=configs.One().devices, max_epochs=2"),
        ("import json\n", "import json\n\nimport configs\n"),
        **{"configs.py": configs},
    )
    found = migrate((start,), Settings())
    assert of(found, "DDP960") == [("configs.py:2", False), ("configs.py:6", False)]


CONFIG = """seed: 1
model:
  devices: 1
trainer:
  max_epochs: 2  # not devices: 1
  devices: 1   # one is enough
  loops:
    devices: 1
other: {devices: 1}
"""


@pytest.mark.parametrize(
    "given", ['**cfg["trainer"]', "**cfg.trainer", 'devices=cfg["trainer"]["devices"]']
)
def test_a_config_is_changed_in_the_section_of_the_trainer(given: str, tmp_path: Path) -> None:
    start = put(
        tmp_path,
        (TRAINER, given),
        (SEED, SEED + "    cfg = yaml.safe_load(open('run.yaml'))\n"),
        ("import json\n", "import json\n\nimport yaml\n"),
        **{"run.yaml": CONFIG, "plain.yml": "trainer:\n  gpus: 1\n"},
    )
    assert written(start)["run.yaml"] == CONFIG.replace("devices: 1   #", "devices: auto   #")
    found = of(migrate((start,), Settings()), "DDP960")
    assert ("plain.yml:2", False) in found


def test_batch_norm_is_synchronised_on_gpus(tmp_path: Path) -> None:
    layer = "self.layer = nn.Linear(4, 1, dtype=torch.float64)"
    norm = (layer, f"{layer}\n        self.norm = nn.BatchNorm1d(4)")
    assert "sync_batchnorm" not in written(put(tmp_path, norm))["train.py"]
    for accelerator, code in (("gpu", "True"), ("auto", "cuda.is_available()")):
        given = ('accelerator="cpu"', f'accelerator="{accelerator}"')
        assert f"sync_batchnorm={code}" in written(put(tmp_path, norm, given))["train.py"]
    given = ('accelerator="cpu"', 'accelerator="gpu"')
    assert "sync_batchnorm" not in written(put(tmp_path, given))["train.py"]


def test_a_pin_to_one_gpu_is_taken_away(tmp_path: Path) -> None:
    script = "#!/bin/bash\n# CUDA_VISIBLE_DEVICES=0\nCUDA_VISIBLE_DEVICES=0 X=1 python train.py 4\n"
    pair = "CUDA_VISIBLE_DEVICES=0,1 python train.py 4\nCUDA_VISIBLE_DEVICES=0 python other.py\n"
    text = written(put(tmp_path, **{"run.sh": script, "pair.sh": pair}))
    assert text["run.sh"] == script.replace("CUDA_VISIBLE_DEVICES=0 X", "X")
    assert "pair.sh" not in text


SLURM = "#!/bin/bash\n#SBATCH --gres=gpu:{}\n{}{}python train.py 64\n"


@pytest.mark.parametrize(
    ("gpus", "tasks", "srun", "said"),
    [
        (4, "#SBATCH --ntasks-per-node=4\n", "srun ", ""),
        (4, "", "srun ", "the job has 4 GPUs, and this is 1 of its tasks per node"),
        (4, "", "", "the job has 4 GPUs, and this is one process, without srun"),
        (1, "", "", "the job asks for one GPU"),
    ],
)
def test_a_job_is_told_of_its_tasks(
    gpus: int, tasks: str, srun: str, said: str, tmp_path: Path
) -> None:
    start = put(tmp_path, **{"job.sbatch": SLURM.format(gpus, tasks, srun)})
    found = migrate((start,), Settings())
    assert [one.message for one in found.findings if one.rule == "DDP963"] == [said] * bool(said)
    assert "job.sbatch" not in {change.path for change in found.changes}


JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n{}srun python train.py 64\n"
NODES = 'num_nodes=int(environ.get("SLURM_JOB_NUM_NODES", 1))'


@pytest.mark.parametrize("tasks", ["", "#SBATCH --ntasks-per-node=1\n"])
@pytest.mark.parametrize("given", ["", "num_nodes=1, "])
def test_a_job_of_several_nodes_has_its_tasks_and_a_trainer_that_knows(
    tasks: str, given: str, tmp_path: Path
) -> None:
    """Elsewhere the script has one node, as before."""
    start = put(tmp_path, (TRAINER, f"{given}{TRAINER}"), **{"job.sbatch": JOB.format(tasks)})
    changes = migrate((start,), Settings()).changes
    text = {change.path: change.after.decode() for change in changes}
    assert text["job.sbatch"] == JOB.format("#SBATCH --ntasks-per-node=4\n")
    assert NODES in text["train.py"]
    write(changes, tmp_path)
    assert not migrate((start,), Settings()).changes


@pytest.mark.parametrize(
    ("job", "trainer"),
    [
        (JOB.replace("--nodes=2", "--nodes=1"), TRAINER),
        (JOB.replace("srun ", ""), TRAINER),
        (JOB.replace("--gres=gpu:4", "--gres=gpu:$N"), f"num_nodes=2, {TRAINER}"),
        (JOB.replace("srun", "srun --ntasks=8"), f"num_nodes=int(sys.argv[2]), {TRAINER}"),
    ],
)
def test_nodes_and_tasks_that_are_not_stated_are_left(
    job: str, trainer: str, tmp_path: Path
) -> None:
    start = put(tmp_path, (TRAINER, trainer), **{"job.sbatch": job.format("")})
    text = written(start)
    assert "job.sbatch" not in text
    assert NODES not in text["train.py"]


FOUND = (
    "    name = time.strftime('%H%M%S')\n"
    "    last = max(OUT.glob('*/*.pt'), default=None)\n"
    "    print('run', name)\n"
)
NAMED = (
    ("import json\n", "import json\nimport time\n"),
    (SEED, SEED + FOUND),
    (
        "    def __init__(self):\n        OUT.mkdir(exist_ok=True)\n",
        "    def __init__(self, name):\n        self.out = OUT / name\n"
        "        self.out.mkdir(parents=True, exist_ok=True)\n",
    ),
    ("Notes()", "Notes(name)"),
    ("datamodule=Rows())", "datamodule=Rows(), ckpt_path=last)"),
)


def test_names_and_checkpoints_are_rank_zeros(tmp_path: Path) -> None:
    text = written(put(tmp_path, *NAMED))
    alone = written(put(tmp_path / "alone", *NAMED), batch_size="per-rank", ignore=("DDP966",))
    assert len(alone["ddp_utils.py"].splitlines()) <= 65  # where no batches are dealt
    assert "name = from_rank_zero(time.strftime('%H%M%S'))" in text["train.py"]
    assert "last = from_rank_zero(max(OUT.glob('*/*.pt'), default=None))" in text["train.py"]
    assert "def from_rank_zero(" in text["ddp_utils.py"]


def test_what_is_found_under_a_condition_is_agreed_on_at_fit(tmp_path: Path) -> None:
    found = "    last = None\n    if len(sys.argv) > 2:\n        last = max(OUT.glob('*'))\n"
    changes = (
        (SEED, SEED + found),
        ("datamodule=Rows())", "datamodule=Rows(), ckpt_path=last)"),
    )
    text = written(put(tmp_path, *changes))["train.py"]
    assert "ckpt_path=from_rank_zero(last))" in text


def test_a_started_project_is_left_alone(tmp_path: Path) -> None:
    start = put(tmp_path, *NAMED)
    for path, text in written(start).items():
        (tmp_path / path).write_text(text)
    again = migrate((start,), Settings())
    assert not again.refusals
    assert not again.changes
    assert not again.wanting


AGREE = """
import os, sys
from pathlib import Path
import lightning as L
import torch
from ddp_utils import from_rank_zero
from torch.utils.data import DataLoader


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


seen = [from_rank_zero(os.getpid()), str(from_rank_zero(Path(str(os.getpid()))))]
trainer = L.Trainer(
    accelerator="cpu", devices=int(sys.argv[1]), max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Net(), DataLoader(torch.zeros(8, 4), 2))
seen.append(from_rank_zero(os.getpid()))  # there is a group now
assert len(set(map(str, seen))) == 1, seen
print(f"<{trainer.global_rank} of {trainer.world_size}: {seen[0]}>", flush=True)
"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def test_one_process_has_the_very_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not hang on what another program has found, nor on torchrun with one process."""
    from runtime.trainer_utils import from_rank_zero

    monkeypatch.setattr(os, "environ", {"FROM_RANK_ZERO_0": "of another", "LOCAL_RANK": "0"})
    value = {"path": object()}
    assert from_rank_zero(value) is value
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "one"}
    monkeypatch.setattr(os, "environ", alone)
    assert from_rank_zero(value) is value


def _start(folder: Path, before: list[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "FROM_RANK"))}
    return subprocess.Popen(
        [sys.executable, *before, "agree.py", "2"],
        cwd=folder,
        env={**kept, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _said(*jobs: subprocess.Popen[str]) -> list[str]:
    """What the ranks say that they have agreed on; torch's exit race comes after that."""
    outputs = [job.communicate(timeout=120)[0] for job in jobs]
    for job, output in zip(jobs, outputs, strict=True):
        assert job.returncode == 0 or EXIT_RACE in output, output
    said = "".join(outputs)  # both may have come in one line
    return sorted(re.findall(r"<(\d of \d: \d+)>", said))


def _slurm(rank: int) -> dict[str, str]:
    """What srun tells each of two tasks on one node."""
    task = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0, "SLURM_NNODES": 1}
    job = {"SLURM_NTASKS": 2, "SLURM_NTASKS_PER_NODE": 2, "SLURM_JOB_ID": 20000 + os.getpid()}
    named = {"SLURM_NODELIST": "127.0.0.1", "SLURM_JOB_NAME": "train"}
    return {key: str(value) for key, value in {**task, **job, **named}.items()}


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["lightning", "torchrun", "srun"])
def test_ranks_agree_before_there_is_a_group(way: str, tmp_path: Path) -> None:
    (tmp_path / "ddp_utils.py").write_text(written(put(tmp_path, *NAMED))["ddp_utils.py"])
    (tmp_path / "agree.py").write_text(AGREE)
    if way == "srun":  # the second task is the first to come
        jobs = [_start(tmp_path, [], _slurm(rank)) for rank in (1, 0)]
    else:
        jobs = [_start(tmp_path, TORCHRUN if way == "torchrun" else [], {})]
    first, second = _said(*jobs)
    assert first.startswith("0 of 2: ")
    assert second == first.replace("0 of", "1 of")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A project that names its folder by the clock, to the microsecond: one process and two."""
    folder = tmp_path_factory.mktemp("named")
    clock = ("time.strftime('%H%M%S')", "f'run{time.time()}'")
    start = put(folder / "source", *NAMED[:1], (SEED, SEED + FOUND.replace(*clock)), *NAMED[2:])
    after = {"train.py": start.read_text(), **written(start)}
    before = {"train.py": start.read_text()}
    found = {}
    for name, files, processes, launcher, trainer in (
        ("before", before, 1, "lightning", None),
        ("after", after, 1, "lightning", None),
        ("two", after, 2, "lightning", None),
        ("torchrun", after, 2, "torchrun", {}),
        ("faulty", before, 2, "lightning", None),
    ):
        root = folder / name
        root.mkdir()
        for path, text in files.items():
            (root / path).write_text(text)
        batch = "64" if processes == 1 else "32"
        seen = folder / f"{name}_seen"
        found[name] = train(
            root, seen, batch, processes=processes, launcher=launcher, trainer=trainer
        )
    return found


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.timeout(400)
class TestNamed:
    """Real processes, started by Lightning and by torchrun; the latter as it is written."""

    def test_all_end(self, runs: dict[str, Run]) -> None:
        assert {name: run.finished for name, run in runs.items()} == dict.fromkeys(runs, True)

    def test_there_is_one_folder(self, runs: dict[str, Run]) -> None:
        folders = {name: len(run.files("out/run*")) for name, run in runs.items()}
        assert folders == {"before": 1, "after": 1, "two": 1, "torchrun": 1, "faulty": 2}

    def test_lines_are_printed_once(self, runs: dict[str, Run]) -> None:
        """Before the Trainer is made, too: by both ways of starting."""
        for name, times in {"one": 1, "two": 1, "torchrun": 1, "faulty": 2}.items():
            lines = runs[name.replace("one", "after")].output.splitlines()
            assert sum(line.startswith("run run") for line in lines) == times, name
            assert lines.count("done") == times, name

    def test_torchrun_has_two_processes_of_one_training(self, runs: dict[str, Run]) -> None:
        one, two = (read_json(runs[n].root / "out" / "metrics.json") for n in ("after", "torchrun"))
        assert [row["val/rows"] for row in two] == [row["val/rows"] for row in one]
