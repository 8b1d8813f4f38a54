"""Which scripts one process runs, by all that a repository says of how they are started."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.launchers import lone_starts
from ddpify.launchers.lone_starts import LoneStarts

SCRIPT = "tools/infer.py"
FILES = ("main.py", SCRIPT, "other/infer.py", "demo/show.py", "pkg/__init__.py", "pkg/evaluate.py")


def line(folder: Path, script: str, launched: bool = False, **texts: str) -> str:
    """The place of the start that was found; "" if there is none, or some are of several."""
    for path in FILES:
        _put(folder, path, "import torch\n")
    given = {name.replace("__", "/").replace("_", "."): text for name, text in texts.items()}
    for path, text in given.items():
        _put(folder, path, text)
    python = sorted(folder.rglob("*.py"))
    launchers = sorted(set(folder.rglob("*.md")) | set(folder.rglob("*.sh")))
    return str(LoneStarts(folder, launchers, python).line(script, launched) or "")


def _put(folder: Path, path: str, text: str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def shell(command: str) -> str:
    """A section of a README."""
    return f"Run it:\n\n```bash\n{command}\n```\n"


ONE = [
    "python tools/infer.py --out a",
    "CUDA_VISIBLE_DEVICES=0 python -u tools/infer.py",
    "./tools/infer.py",
    "cd tools && python infer.py",
    "SCRIPT=tools/infer.py\npython $SCRIPT",
    "torchrun --nproc_per_node=2 -m pkg.evaluate\npython tools/infer.py",
    "torchrun --nproc_per_node=2 main.py\npython tools/infer.py",
    "pip install -r requirements.txt\n$PYTHON tools/infer.py --gpus 1 --distributed=false",
]


@pytest.mark.parametrize("command", ONE)
def test_a_plain_start_is_of_one_process(command: str, tmp_path: Path) -> None:
    assert line(tmp_path, SCRIPT, README_md=shell(command)).startswith("README.md:")


@pytest.mark.parametrize(
    ("said", "alone"),
    [
        ("- use horovodrun to train on several GPUs\n", True),
        ("Start it with `horovodrun -np 4` on several GPUs.\n", False),
        ("On Slurm put `srun` before tools/infer.py.\n", False),
    ],
)
def test_what_people_are_told_of_launchers(said: str, alone: bool, tmp_path: Path) -> None:
    text = shell("python tools/infer.py") + said
    assert bool(line(tmp_path, SCRIPT, README_md=text)) is alone


OF_ONE = [
    "torchrun --nproc_per_node=1 tools/infer.py",
    "torchrun --standalone --nnodes 1 --nproc-per-node 1 tools/infer.py --dist-url env://",
    "python -m torch.distributed.launch --use_env --nproc_per_node=1 tools/infer.py",
    "python3 -m torch.distributed.run --nproc_per_node=1 \\\n  -m tools.infer",
    "deepspeed --num_gpus 1 tools/infer.py --deepspeed --deepspeed_config ds.json",
    "deepspeed --num_nodes=1 --num_gpus=1 --master_port $PORT tools/infer.py",
    "deepspeed --include localhost:3 tools/infer.py",
    "CUDA_VISIBLE_DEVICES=0 deepspeed tools/infer.py",
    "export CUDA_VISIBLE_DEVICES=2\ndeepspeed tools/infer.py",
    "deepspeed --num_gpus 1 tools/infer.py\n# torchrun --nproc_per_node=1 \\\n#  tools/infer.py",
    "torchrun --nproc_per_node=1 tools/infer.py\npython tools/infer.py",
]


@pytest.mark.parametrize("command", OF_ONE)
def test_a_launcher_of_one_process(command: str, tmp_path: Path) -> None:
    text = shell(command)
    assert line(tmp_path, SCRIPT, True, README_md=text).startswith("README.md:")
    assert line(tmp_path, SCRIPT, README_md=text) == ""


OF_MORE = [
    "python tools/infer.py",
    "torchrun tools/infer.py",
    "torchrun --nproc_per_node=$GPUS tools/infer.py",
    "torchrun --nproc_per_node=1 $OPTIONS tools/infer.py",
    "torchrun --nproc_per_node=1 --nnodes=2 --node_rank=$1 tools/infer.py",
    "srun torchrun --nproc_per_node=1 tools/infer.py",
    "torchrun --nproc_per_node=1 tools/infer.py\n# torchrun --nproc_per_node=4 tools/infer.py",
    "deepspeed tools/infer.py",
    "deepspeed --num_gpus 1 --hostfile hosts tools/infer.py",
    "deepspeed --num_gpus 1 --num_nodes 2 tools/infer.py",
    "deepspeed --include localhost:0,1 tools/infer.py",
    "CUDA_VISIBLE_DEVICES=0,1 deepspeed tools/infer.py",
    "CUDA_VISIBLE_DEVICES=0 deepspeed --num_gpus 2 tools/infer.py",
    "export CUDA_VISIBLE_DEVICES=$1\ndeepspeed tools/infer.py",
    "export CUDA_VISIBLE_DEVICES=0\nexport CUDA_VISIBLE_DEVICES=0,1\ndeepspeed tools/infer.py",
    "CUDA_VISIBLE_DEVICES=0 python main.py\ndeepspeed tools/infer.py",
]


@pytest.mark.parametrize("command", OF_MORE)
def test_a_launcher_that_may_start_more(command: str, tmp_path: Path) -> None:
    assert line(tmp_path, SCRIPT, True, README_md=shell(command)) == ""


@pytest.mark.parametrize(("number", "alone"), [("1", True), ("2", False)])
@pytest.mark.parametrize("name", ["job_yaml", "tools__infer_py", "docs__use_md", "more__run_sh"])
def test_what_else_names_a_launcher_of_one(
    name: str, number: str, alone: bool, tmp_path: Path
) -> None:
    said = f"torchrun --nproc_per_node={number} tools/infer.py\n"
    given = {"README_md": shell("torchrun --nproc_per_node=1 tools/infer.py"), name: said}
    assert bool(line(tmp_path, SCRIPT, True, **given)) is alone


def test_another_project_of_the_repository_speaks_of_its_own(tmp_path: Path) -> None:
    """Its README has launchers, and names a program, each for itself."""
    root = tmp_path / "part"
    _put(root, "infer.py", "")
    _put(root, "README.md", shell("python infer.py"))
    _put(tmp_path, "other/README.md", "The infer.py script is short.\n\n" + shell("bash all.sh"))
    (tmp_path / ".git").mkdir()
    starts = LoneStarts(root, [root / "README.md"], [root / "infer.py"])
    assert starts.line("infer.py")


SEVERAL = [
    "torchrun --nproc_per_node=2 tools/infer.py",
    "python -m torch.distributed.launch tools/infer.py",
    "accelerate launch tools/infer.py",
    "mpirun -n 2 python tools/infer.py",
    "srun python tools/infer.py",
    "RANK=0 WORLD_SIZE=2 python tools/infer.py",
    "python tools/infer.py --world-size 2 --rank 0",
    "python tools/infer.py --num_gpus 8",
    "python tools/infer.py --gpus 0,1",
    "python tools/infer.py --n_gpu_per_node 4",
    "python tools/infer.py distributed=true",
    "bash dist.sh tools/infer.py",
    "sbatch job.sh tools/infer.py",
    "torchrun --nproc_per_node=2 $SCRIPT",
    "torchx run dist.ddp --script tools/infer.py",
    "horovodrun -np 2 python tools/infer.py",
    "mpiexec -n 2 python tools/infer.py",
    "colossalai run --nproc_per_node 2 tools/infer.py",
    "deepspeed tools/infer.py",
    "export MASTER_ADDR=here RANK=1\npython tools/infer.py",
    "srun \\\n  python tools/infer.py",
    "for s in main.py tools/infer.py; do\n torchrun $s\ndone",
]


@pytest.mark.parametrize("command", SEVERAL)
def test_with_another_start_nothing_is_said(command: str, tmp_path: Path) -> None:
    both = shell("python tools/infer.py") + shell(command)
    assert line(tmp_path, SCRIPT, README_md=both) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run_py", "import subprocess\nsubprocess.run(['torchrun', 'tools/infer.py'])\n"),
        ("run_py", "run = [sys.executable, 'tools/infer.py', f'--rank={rank}']\n"),
        ("run_py", "notebook_launcher(main, num_processes=2)  # of tools/infer.py\n"),
        ("run_py", "Popen(['python', 'tools/infer.py'])\n"),
        ("run_py", "os.system('python tools/infer.py')\n"),
        ("run_py", "submitit.submit('tools/infer.py')\n"),
        ("run_toml", "tasks = ['dist.sh tools/infer.py']\n"),
        ("job_yaml", "command:\n  - torchrun\n  - tools/infer.py\n"),
        ("pod_yaml", "kind: PyTorchJob\ncommand: [python, tools/infer.py]\n"),
        ("jobs__train", "#!/bin/bash\ntorchrun tools/infer.py\n"),
        ("jobs__train_pbs", "#PBS -l nodes=2\nmpirun python tools/infer.py\n"),
        ("_ci__config_yml", "- run: torchrun tools/infer.py\n"),
        ("notes_ipynb", '{"source": ["!torchrun tools/infer.py\\n"]}'),
        ("docs__use_rst", "::\n\n  torchrun --nproc_per_node=2 tools/infer.py\n"),
        ("tools__infer_py", '"""Usage: torchrun --nproc_per_node=2 infer.py"""\n'),
        ("start_sh", "#!/bin/bash\nsrun -n 8 \\\n  python tools/infer.py\n"),
        ("start_sh", '#!/bin/bash\nCMD="python tools/infer.py"\nsrun bash -c "$CMD"\n'),
        ("docs__use_md", "As before, with `torchrun` for `python`: tools/infer.py\n"),
    ],
)
def test_it_may_be_started_elsewhere(name: str, text: str, tmp_path: Path) -> None:
    given = {"README_md": shell("python tools/infer.py"), name: text}
    assert line(tmp_path, SCRIPT, **given) == ""


def test_a_script_that_is_not_among_those_given_counts(tmp_path: Path) -> None:
    """Git ignores some that it keeps: `*.sh` in a .gitignore."""
    _put(tmp_path, "tools/infer.py", "")
    _put(tmp_path, "README.md", shell("python tools/infer.py"))
    _put(tmp_path, "tools/scripts/dist.sh", "torchrun --nproc_per_node=$1 infer.py\n")
    starts = LoneStarts(tmp_path, [tmp_path / "README.md"], [tmp_path / "tools/infer.py"])
    assert starts.line(SCRIPT) is None


def test_the_repository_around_a_project_counts(tmp_path: Path) -> None:
    root = tmp_path / "part"
    _put(root, "tools/infer.py", "")
    _put(root, "README.md", shell("python tools/infer.py"))
    given = (root, [root / "README.md"], [root / "tools/infer.py"])
    assert LoneStarts(*given).line(SCRIPT)
    (tmp_path / "USE.md").write_text(shell("mpirun -n 2 python part/tools/infer.py"))
    (tmp_path / ".git").mkdir()
    assert LoneStarts(*given).line(SCRIPT) is None


def test_a_program_of_the_same_name_is_another(tmp_path: Path) -> None:
    texts = {
        "tools__README_md": shell("python infer.py"),
        "other__README_md": shell("torchrun --nproc_per_node=2 infer.py"),
        "README_md": shell("torchrun --nproc_per_node=2 other/infer.py"),
    }
    assert line(tmp_path, SCRIPT, **texts).startswith("tools/README.md:")
    assert line(tmp_path, "other/infer.py", **texts) == ""


def test_a_path_begins_at_its_file_or_at_the_project(tmp_path: Path) -> None:
    plain = shell("python tools/infer.py")
    several = shell("torchrun --nproc_per_node=2 infer.py")
    _put(tmp_path, "infer.py", "")
    assert line(tmp_path, SCRIPT, README_md=plain, tools__README_md=several) == ""
    _put(tmp_path, "docs/tools/infer.py", "")
    several = several.replace("infer.py", "tools/infer.py")
    (tmp_path / "tools/README.md").write_text("")
    assert line(tmp_path, SCRIPT, README_md=plain, docs__use_md=several) == ""


def test_a_name_that_fits_two_programs_is_no_start(tmp_path: Path) -> None:
    assert line(tmp_path, SCRIPT, docs__use_md=shell("python infer.py")) == ""


def test_modules(tmp_path: Path) -> None:
    module = "pkg/evaluate.py"
    plain = shell("python -m pkg.evaluate --data x")
    assert line(tmp_path, module, README_md=plain)
    several = plain + shell("torchrun --nproc_per_node=2 -m pkg.evaluate")
    assert line(tmp_path, module, README_md=several) == ""
    called = {"README_md": plain, "run_py": "run(['torchrun', '-m', 'pkg.evaluate'])\n"}
    assert line(tmp_path, module, **called) == ""


def test_a_package_that_is_started(tmp_path: Path) -> None:
    _put(tmp_path, "pkg/__main__.py", "")
    plain = shell("python -m pkg --data x")
    assert line(tmp_path, "pkg/__main__.py", README_md=plain)
    several = plain + shell("mpirun -n 2 python -m pkg")
    assert line(tmp_path, "pkg/__main__.py", README_md=several) == ""


def test_what_is_named_nowhere_is_not_known(tmp_path: Path) -> None:
    assert line(tmp_path, "main.py", README_md=shell("python tools/infer.py")) == ""


def test_what_was_looked_into_is_told(tmp_path: Path) -> None:
    _put(tmp_path, "main.py", "")
    _put(tmp_path, "README.md", shell("python main.py"))
    _put(tmp_path, "job.yaml", "a: 1\n")
    starts = LoneStarts(tmp_path, [tmp_path / "README.md"], [tmp_path / "main.py"])
    assert starts.line("main.py")
    assert starts.read == {tmp_path, tmp_path / "job.yaml"}


def test_in_a_repository_that_is_too_large_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"README_md": shell("python main.py")}
    for limit in ("_MOST", "_LONGEST"):
        with monkeypatch.context() as patch:
            patch.setattr(lone_starts, limit, 5)
            assert line(tmp_path, "main.py", **plain) == ""
    assert line(tmp_path, "main.py", **plain)
    environment = {"envs__mine__pyvenv_cfg": "", "envs__mine__run_txt": "torchrun main.py\n"}
    assert line(tmp_path, "main.py", **plain, **environment)
