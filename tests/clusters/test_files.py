"""What a start file says: the program, its present arguments, the nodes; and whose file it is."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from ddpify import cli
from ddpify.clusters.files import change_of, start_files
from ddpify.outcome import Refusal
from ddpify.settings import LAUNCHERS, Settings
from tests.clusters.projects import RANKS, SCRIPT, bash, commands, migrate, project

SHOW = '#!/bin/bash\nprintf "%s\\n" "${0##*/}" "$@"\n'
BATCH = """#!/bin/bash
#SBATCH --partition=a100
#SBATCH --account=vision
#SBATCH --nodes=1
#SBATCH --gres=gpu:4
#SBATCH --mem=32G
#SBATCH --output=log.txt
module load cuda/12.4
srun python main.py --lr 0.3
"""
LIGHTNING = """\
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    L.seed_everything(1)
    data = TensorDataset(torch.randn(8, 4), torch.randn(8, 1))
    L.Trainer(max_epochs=1, devices=1).fit(Net(), DataLoader(data, batch_size=4, shuffle=True))
"""


def written(folder: Path, launcher: str, entry: str = "main.py", **choices: int) -> str:
    """The start file of a project, not asked for its migration."""
    settings = Settings(launcher=launcher, **choices)  # type: ignore[arg-type]
    (file,) = start_files(folder, (entry,), settings)
    return file.text


def torchrun_line(folder: Path, text: str, tmp_path: Path, *words: str) -> list[str]:
    """What a start file of torchrun calls, a word each."""
    (folder / "started.sh").write_text(text)
    path = commands(tmp_path / "bin", {"torchrun": SHOW})
    done = bash(folder, "started.sh", *words, PATH=path, HEAD="node0")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def kubelet(words: list[str]) -> list[str]:
    """Command and arguments as a pod gets them: ``$(NAME)`` filled in, ``$$`` halved."""
    known = {"$(OMP_NUM_THREADS)": "1"}
    filled = re.compile(r"\$\$|\$\(\w+\)")
    return [
        filled.sub(lambda m: "$" if m[0] == "$$" else known.get(m[0], m[0]), word) for word in words
    ]


def test_the_diff_shows_it_as_a_new_file_with_the_way_to_start_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, scripts__train_sh=SCRIPT)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["diff", "main.py", "--launcher", "slurm", "--nodes", "4"]) == 1
    patch = capsys.readouterr().out
    assert "--- /dev/null\n+++ b/run_4_nodes.sbatch\n" in patch
    assert "DDP002 starts on 4 nodes: sbatch run_4_nodes.sbatch" in patch
    assert not (tmp_path / "run_4_nodes.sbatch").exists()
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=patch, text=True, check=True)
    assert cli.main(["diff", "main.py", "--launcher", "slurm", "--nodes", "4"]) == 0
    assert capsys.readouterr().out == ""


def test_what_was_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert migrate(Path(), "--launcher", "torchrun", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["on_nodes"] == ["HEAD=<a node> bash run_2_nodes.sh   (on each node)"]
    assert migrate(Path(), "--launcher", "slurm", "--nodes", "1") == 0
    assert "On several nodes:\n  sbatch run_1_node.sbatch\n" in capsys.readouterr().out
    assert cli.main(["check"]) == 0  # start files are launchers, too


def test_a_program_in_lightning_is_told_the_number_of_nodes_by_its_trainer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project(tmp_path) / "main.py").write_text(LIGHTNING)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["diff", "main.py", "--launcher", "slurm", "--nodes", "3"]) == 1
    assert "Trainer(num_nodes=3) has to say the number of nodes, too" in capsys.readouterr().err


def test_a_file_of_the_same_name_is_the_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the user's is a refusal, of which nothing is written; an edited one stays."""
    project(tmp_path, run_2_nodes_sh="echo mine\n")
    assert migrate(tmp_path, "--launcher", "torchrun") == 2
    assert "run_2_nodes.sh: was not written by ddpify" in capsys.readouterr().err
    assert not (tmp_path / "ddp_utils.py").exists()
    file = tmp_path / "run_2_nodes.sh"
    file.unlink()
    assert migrate(tmp_path, "--launcher", "torchrun") == 0
    first = file.read_text()
    assert migrate(tmp_path, "--launcher", "torchrun", "--gpus-per-node", "4", "--force") == 0
    assert file.read_text() != first  # nobody has touched it
    file.write_text(file.read_text() + "echo mine\n")
    capsys.readouterr()
    assert migrate(tmp_path, "--launcher", "torchrun", "--force") == 0
    assert "was edited since ddpify wrote it, and stays" in capsys.readouterr().out
    assert file.read_text().endswith("echo mine\n")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_file_of_shell_parses(launcher: str, tmp_path: Path) -> None:
    project(tmp_path, scripts__train_sh=SCRIPT)
    text = written(tmp_path, launcher)
    shells = [text]
    if launcher == "kubernetes":
        _, job = yaml.safe_load_all(text)
        shells = [job["spec"]["template"]["spec"]["containers"][0]["command"][2]]
    for shell in shells:
        done = bash(tmp_path, "-n", "-c", shell)
        assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, text.splitlines())) <= 100


def test_arguments_of_the_present_line_are_taken_over(tmp_path: Path) -> None:
    """Those that are known; what the running shell fills in goes with its option, and is named."""
    project(tmp_path, scripts__train_sh=SCRIPT, other_sh="python main.py --lr 7\n")
    text = written(tmp_path, "torchrun")
    assert "# Other lines that start it, of which nothing is taken over: scripts/train.sh:2" in text
    (tmp_path / "other.sh").unlink()
    text = written(tmp_path, "torchrun")
    assert "scripts/train.sh:2, for the shell fills it in: --seed $1\n" in text
    line = torchrun_line(tmp_path, text, tmp_path, "--more", "a b")
    assert line[line.index("main.py") :] == (
        ["main.py", "--lr", "0.05", "--name", "my run", "--more", "a b"]
    )
    assert {"--nnodes=2", "--nproc-per-node=gpu", "--rdzv-endpoint=node0:29500"} <= set(line)
    assert "--rdzv-conf=read_timeout=900,join_timeout=900" in line


def test_a_program_that_a_variable_names_is_known_by_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "train.py").write_text(RANKS)
    (tmp_path / "go.sh").write_text("cd tools\nPROGRAM=train.py\npython $PROGRAM --lr 2\n")
    text = written(tmp_path, "torchrun", "tools/train.py").replace("exec", "pwd; exec")
    shown = torchrun_line(tmp_path, text, tmp_path)
    assert shown[0] == str(tmp_path / "tools")
    assert shown[-3:] == ["train.py", "--lr", "2"]


def test_a_line_that_is_not_understood_is_named(tmp_path: Path) -> None:
    project(tmp_path, go_sh='eval "python main.py --lr 2"\n')
    text = written(tmp_path, "torchrun")
    assert "# Not taken over from go.sh:1, for the shell fills it in: the whole line\n" in text


ENVIRONMENT = """export MODE=off PATHS=/data/$USER
KIND='a b$'
export KIND
if [ -n "$1" ]; then export MAYBE=1; fi
CUDA_VISIBLE_DEVICES=0,1 env ONE=1 NOW=$(date) python main.py --lr 2
"""


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_environment_of_the_present_line_is_taken_over(launcher: str, tmp_path: Path) -> None:
    """Where its values are known; the others, and what start files decide, are named."""
    text = written(project(tmp_path, go_sh=ENVIRONMENT), launcher)
    words = " ".join(text.replace("#", "").split())
    named = "for the shell fills it in: PATHS=/data/$USER, MAYBE=1, NOW=$(date) "
    assert named in words
    assert "for it is decided here: CUDA_VISIBLE_DEVICES=0,1 " in words
    assert max(map(len, text.splitlines())) <= 100
    known = {"MODE": "off", "KIND": "a b$", "ONE": "1"}
    if launcher == "kubernetes":
        _, job = yaml.safe_load_all(text)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        values = {one["name"]: one["value"].replace("$$", "$") for one in container["env"]}
        assert values == known | {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"}
    elif launcher == "torchx":
        assert f"--env {shlex.quote('MODE=off,KIND=a b$,ONE=1')}\n" in text
    else:
        assert {f"export {k}={shlex.quote(v)}" for k, v in known.items()} <= set(text.splitlines())


def test_a_script_is_believed_before_a_readme(tmp_path: Path) -> None:
    project(tmp_path, scripts__train_sh="python main.py --lr 2\n")
    (tmp_path / "README.md").write_text("```bash\npython main.py --lr 1\n```\n")
    assert "  --lr 2 \\\n" in written(tmp_path, "torchrun")


@pytest.mark.parametrize(
    ("script", "folder", "program"),
    [
        pytest.param("python tools/train.py\n", "", ["tools/train.py"], id="from the top"),
        pytest.param("cd tools && python train.py\n", "tools", ["train.py"], id="from its folder"),
        pytest.param("python -m tools.train\n", "", ["-m", "tools.train"], id="as a module"),
        pytest.param("", "", ["tools/train.py"], id="nothing known"),
    ],
)
def test_it_runs_where_it_ran(script: str, folder: str, program: list[str], tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "train.py").write_text(RANKS)
    (tmp_path / "go.sh").write_text(script)
    text = written(tmp_path, "torchrun", "tools/train.py").replace("exec", "pwd; exec")
    shown = torchrun_line(tmp_path, text, tmp_path)
    assert shown[0] == str(tmp_path / folder)
    assert shown[-len(program) :] == program


def test_a_file_that_starts_another_program_stays(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(RANKS)
    choices = Settings(launcher="torchrun")
    (first,) = start_files(tmp_path, ("a/train.py",), choices)
    (tmp_path / first.path).write_text(first.text)
    (second,) = start_files(tmp_path, ("b/train.py",), choices)
    refused = change_of(tmp_path, second)
    assert isinstance(refused, Refusal)
    assert refused.message.startswith("run_2_nodes.sh: starts a/train.py and is not overwritten")
    assert change_of(tmp_path, first) is None


def test_several_programs_have_a_file_each(tmp_path: Path) -> None:
    project(tmp_path, gan__main_sh="")
    (tmp_path / "gan" / "__main__.py").write_text(RANKS)
    settings = Settings(launcher="torchrun", nodes=3)
    files = start_files(tmp_path, ("main.py", "gan/__main__.py"), settings)
    assert [file.path for file in files] == ["run_main_3_nodes.sh", "run_gan_3_nodes.sh"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_programs_of_one_name_have_a_file_and_a_name_each(launcher: str, tmp_path: Path) -> None:
    """A Job of the same name would take the other's place in the cluster."""
    entries = ("a/train.py", "b/train.py", "b-train.py", "b/c/x.py", "b-c/x.py", "b-c-x-2.py")
    for entry in entries:
        (tmp_path / entry).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / entry).write_text(RANKS)
    files = start_files(tmp_path, entries, Settings(launcher=launcher))  # type: ignore[arg-type]
    stems = ["a-train", "b-train", "b-train-2", "b-c-x", "b-c-x-3", "b-c-x-2"]
    assert [re.sub(r"_2_nodes.*", "", file.path) for file in files] == [f"run_{n}" for n in stems]
    if launcher == "kubernetes":
        whole = [part for file in files for part in yaml.safe_load_all(file.text)]
        names = [part["metadata"]["name"] for part in whole]
        assert names == [stem for stem in stems for _ in ("Service", "Job")]


def test_without_a_head_nothing_is_started(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "started.sh").write_text(written(tmp_path, "torchrun"))
    done = bash(tmp_path, "started.sh", PATH=commands(tmp_path / "bin", {"torchrun": SHOW}))
    assert done.returncode != 0
    assert "HEAD: is one of the nodes: HEAD=node0 bash run_2_nodes.sh" in done.stderr


def test_directives_of_the_present_job_are_taken_over(tmp_path: Path) -> None:
    """Where the job may run and what has to be loaded; not what was meant for one process."""
    text = written(project(tmp_path, job_sh=BATCH), "slurm")
    directives = re.findall(r"^#SBATCH (.*)$", text, re.M)
    assert {"--partition=a100", "--account=vision", "--gpus-per-node=4"} <= set(directives)
    assert not {"--nodes=1", "--mem=32G", "--output=log.txt"} & set(directives)
    assert "not taken over: --mem=32G\n" in text
    assert "\nmodule load cuda/12.4\n" in text
    assert "  --lr 0.3 \\\n" in text
    assert "--resume-from" not in text  # a guess: the name alone does not say what it takes


@pytest.mark.parametrize("again", ["yes", "no"])
def test_at_the_time_limit_a_job_that_may_goes_back_into_the_queue(
    again: str, tmp_path: Path
) -> None:
    folder = project(tmp_path / "project")
    (folder / "job.sbatch").write_text(written(folder, "slurm", gpus_per_node=4))
    requeue = f'#!/bin/bash\necho "$@" >> {tmp_path}/scontrol; echo n1\n'
    # a step that ends by itself after the signal, as a program that is near its end does
    step = f"#!/bin/bash\ntouch {tmp_path}/running; sleep 1; exit 7\n"
    path = commands(tmp_path / "bin", {"scontrol": requeue, "srun": step})
    given = {"SLURM_JOB_ID": "71", "SLURM_JOB_NODELIST": "n1", "SLURM_NNODES": "1"}
    signal = f"while [ ! -e {tmp_path}/running ]; do sleep 0.05; done; kill -USR1 $$"
    (folder / "limit.sh").write_text(f"({signal}) &\nsource ./job.sbatch\n")
    done = bash(folder, "limit.sh", PATH=path, SLURM_SUBMIT_DIR=str(folder), REQUEUE=again, **given)
    assert done.returncode == 7, done.stderr  # the step's, not the signal's
    asked = (tmp_path / "scontrol").read_text()
    assert ("requeue 71" in asked) is (again == "yes")
    assert "time limit: job 71" in done.stderr


def test_the_job_of_kubernetes_runs_what_torchrun_is_given(tmp_path: Path) -> None:
    project(tmp_path, scripts__train_sh=SCRIPT)
    service, job = yaml.safe_load_all(written(tmp_path, "kubernetes", nodes=3, gpus_per_node=2))
    name, pods = service["metadata"]["name"], job["spec"]["template"]["spec"]
    assert (service["spec"]["clusterIP"], pods["subdomain"]) == ("None", name)
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (3, 3)
    (container,) = pods["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    path = commands(tmp_path / "pod", {"torchrun": SHOW})
    words = kubelet([*container["command"][1:], *container["args"]])
    done = bash(tmp_path, *words, PATH=path, JOB_COMPLETION_INDEX="2")
    line = done.stdout.splitlines()
    of_torchrun = written(tmp_path, "torchrun", nodes=3, gpus_per_node=2)
    alone = torchrun_line(tmp_path, of_torchrun, tmp_path)
    same = [word for word in alone if not word.startswith(("--rdzv-endpoint", "--rdzv-conf"))]
    assert set(same) - {"--log-dir=logs"} <= set(line)
    assert line[line.index("main.py") :] == alone[alone.index("main.py") :]
    assert f"--rdzv-endpoint={name}-0.{name}:29500" in line
    assert f"--local-addr={name}-2.{name}" in line
    assert any(word.startswith("--rdzv-conf=is_host=false,") for word in line)


ODD = ["$HOME", "x$$y", "$(OMP_NUM_THREADS)", 'a "b"', "it's", "", "-1", "#h", "ü: # x", "p\nq"]


def test_words_that_shells_and_kubernetes_read_arrive_as_they_are(tmp_path: Path) -> None:
    """Quotes, dollars, spaces and lines, in arguments and in the names of file and folder."""
    (tmp_path / "my tools").mkdir()
    entry = "my tools/01 it's.py"
    (tmp_path / entry).write_text("print(1)\n")
    line = f'python {shlex.join([entry, *ODD])} --x "$(cat\nfalse\n)"\n'
    (tmp_path / "go.sh").write_text(line)
    expected = [entry, *ODD]
    line = torchrun_line(tmp_path, written(tmp_path, "torchrun", entry), tmp_path)
    assert "\n".join(line).endswith("\n".join(expected))
    service, job = yaml.safe_load_all(written(tmp_path, "kubernetes", entry))
    assert re.fullmatch("[a-z][a-z0-9-]*", service["metadata"]["name"])  # a Service's, RFC 1035
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = kubelet([*container["command"][1:], *container["args"]])
    path = commands(tmp_path / "pod", {"torchrun": SHOW})
    done = bash(tmp_path, *words, PATH=path, JOB_COMPLETION_INDEX="0")
    assert done.stdout.endswith("\n".join(expected) + "\n")


def test_torchx_is_given_nodes_and_arguments(tmp_path: Path) -> None:
    text = written(project(tmp_path, scripts__train_sh=SCRIPT), "torchx", gpus_per_node=4)
    (tmp_path / "started.sh").write_text(text)
    path = commands(tmp_path / "bin", {"torchx": SHOW})
    line = bash(tmp_path, "started.sh", "--more", PATH=path).stdout.splitlines()
    assert line[:5] == ["torchx", "run", "--scheduler", "slurm", "dist.ddp"]
    assert line[line.index("-j") + 1] == "2x4"
    assert line[line.index("--script") :] == (
        ["--script", "main.py", "--", "--lr", "0.05", "--name", "my run", "--more"]
    )


def test_settings_say_it_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path)
    settings = '[tool.ddpify]\nlauncher = "kubernetes"\nnodes = 3\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["diff", "main.py"]) == 1
    assert "+++ b/run_3_nodes.yaml" in capsys.readouterr().out
    (tmp_path / "pyproject.toml").write_text("[tool.ddpify]\nnodes = 3\n")
    assert cli.main(["diff", "main.py"]) == 2
    assert "nodes goes with launcher" in capsys.readouterr().err
