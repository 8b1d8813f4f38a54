"""Launch scripts are rewritten as in the table, and only there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify.launchers import findings, launch_edits, read_shell
from ddpify.rules.base import How, Severity
from tests.launchers.applied import migrated
from tests.launchers.cases import REWRITTEN, UNTOUCHED, Case

BASH = shutil.which("bash") or "bash"  # where it is missing the tests fail


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_script_is_rewritten(case: Case) -> None:
    assert migrated(case, case.before) == case.after


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_rewritten_script_has_nothing_left_to_do(case: Case) -> None:
    assert findings(case.path, case.after, case.entries, files=case.files) == ()


@pytest.mark.parametrize("case", UNTOUCHED, ids=lambda case: case.id)
def test_script_is_left_alone(case: Case) -> None:
    assert findings(case.path, case.before, case.entries, files=case.files) == ()


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_rewritten_script_is_valid_shell(case: Case, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(case.after, newline="")
    shell = "sh" if case.after.startswith("#!/bin/sh") else BASH
    result = subprocess.run([shell, "-n", script], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_edits_are_text_at_the_words_that_change() -> None:
    text = "#!/bin/bash\n# ü\n  G=ü; CUDA_VISIBLE_DEVICES=0,1 python -u main.py\n"
    (launch,) = read_shell("run.sh", text, ["main.py"])
    (edit,) = launch_edits(launch)
    line = text.split("\n")[2]
    span = edit.site.span
    assert edit.how is How.TEXT
    assert (span.line, line[span.column : span.end_column]) == (3, "python -u")
    assert launch.gpus.ids == ("0", "1")
    assert str(launch.site) == "run.sh:3"


def test_finding_says_what_is_wrong() -> None:
    (finding,) = findings("run.sh", "python main.py\n", ["main.py"], rule_id="DDP900")
    assert finding.rule == "DDP900"
    assert finding.message == ("starts main.py as one process; torchrun starts one process per GPU")
    assert (finding.severity, finding.advice) == (Severity.WARNING, "")


def test_distributed_launches_are_reported_as_such() -> None:
    (launch,) = read_shell("run.sh", "torchrun --nproc_per_node=2 main.py\n", ["main.py"])
    assert launch.already_torchrun
    assert launch_edits(launch) == ()


def test_undecodable_bytes_do_not_move_positions() -> None:
    text = b"# \xe9\xff\npython main.py \xe9\n".decode("utf-8", "surrogateescape")
    case = Case("bytes", text, "")
    assert migrated(case, text).encode("utf-8", "surrogateescape").endswith(b" main.py \xe9\n")


def test_the_parser_is_loaded_only_to_read_a_script() -> None:
    code = "import ddpify.launchers, sys; print([m for m in sys.modules if 'tree_sitter' in m])"
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "entries", "words"),
    [
        pytest.param("srun -N 2 python main.py\n", ("main.py",), "on 2 nodes", id="nodes"),
        pytest.param(
            "#SBATCH --nodes=4\nsrun -N 2 python main.py\n",
            ("main.py",),
            "on 2 of the job's 4 nodes",
            id="some nodes",
        ),
        pytest.param(
            "#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\nsrun python main.py\n",
            ("main.py",),
            "4 tasks per node",
            id="tasks on nodes",
        ),
        pytest.param(
            "#SBATCH -N 2\n#SBATCH -n 8\nsrun python main.py\n",
            ("main.py",),
            "8 tasks on 2 nodes",
            id="all tasks",
        ),
        pytest.param(
            "#SBATCH -N 2\nfor s in 1 2; do srun python main.py & done\n",
            ("main.py",),
            "beside others",
            id="side by side",
        ),
        pytest.param(
            'sbatch --wrap="python main.py"\n', ("main.py",), "text for sbatch", id="wrap"
        ),
        pytest.param(
            "for f in main eval; do python $f.py; done\n",
            ("main.py",),
            r"\$f.py does not always stand for it",
            id="one of several",
        ),
        pytest.param("srun -n 8 python main.py\n", ("main.py",), "8 tasks", id="tasks"),
        pytest.param(
            "srun --ntasks-per-node=4 python main.py\n", ("main.py",), "4 tasks per node", id="per"
        ),
        pytest.param(
            "srun -n $N python main.py\n", ("main.py",), r"starts, \$N, is not known", id="unknown"
        ),
        pytest.param("mpirun -np 4 python main.py\n", ("main.py",), "mpirun starts", id="mpi"),
        pytest.param("run_all python main.py\n", ("main.py",), "what run_all does", id="function"),
        pytest.param("$SRUN python main.py\n", ("main.py",), r"what \$SRUN does", id="prefix"),
        pytest.param("trap 'python main.py' EXIT\n", ("main.py",), "text for trap", id="trap"),
        pytest.param("$LAUNCH main.py\n", ("main.py",), r"what \$LAUNCH stands", id="variable"),
        pytest.param("R=bash\n$R main.py\n", ("main.py",), r"what \$R stands", id="not python"),
        pytest.param(
            "R='python -m pdb'\n$R main.py\n", ("main.py",), r"what \$R stands", id="other module"
        ),
        pytest.param(
            "python -m pkg.a_$1\n",
            ("pkg/a_b.py",),
            r"pkg\.a_\$1, is put together",
            id="module name",
        ),
        pytest.param("python -i main.py\n", ("main.py",), "-i keeps", id="interactive"),
        pytest.param(
            "python train_$1.py\n", ("train_a.py",), r"train_\$1.py, is put together", id="name"
        ),
        pytest.param(
            'python "$D/main.py"\n', ("main.py",), "fits old/main.py as well", id="ambiguous"
        ),
        pytest.param('C="python main.py"\n$C\n', ("main.py",), r"text in \$C", id="in a variable"),
        pytest.param("A=(python -u main.py)\n", ("main.py",), r"text in \$A", id="in an array"),
        pytest.param("eval 'python main.py'\n", ("main.py",), "text for eval", id="eval"),
        pytest.param('ssh h "cd x; python main.py"\n', ("main.py",), "text for ssh", id="ssh"),
        pytest.param(
            "sbatch <<EOF\npython main.py\nEOF\n", ("main.py",), "text for sbatch", id="heredoc"
        ),
        pytest.param(
            "cat > job.sh <<EOF\npython main.py\nEOF\n", ("main.py",), "to a file", id="generated"
        ),
        pytest.param(
            "if true; then\npython main.py\n", ("main.py",), "cannot be read as shell", id="broken"
        ),
        pytest.param("f() {\npython main.py --a=(\n}\n", ("main.py",), "from line", id="error"),
    ],
)
def test_what_is_not_rewritten_is_named(text: str, entries: tuple[str, ...], words: str) -> None:
    (finding,) = findings("run.sh", text, entries, files=("old/main.py",))
    assert re.search(words, finding.message)
    assert finding.fix == ()
    assert "torchrun" in finding.advice


def test_a_name_beside_the_script_and_in_the_root_is_a_question() -> None:
    text = "python main.py\n"
    (finding,) = findings("old/run.sh", text, ("main.py",), files=("old/main.py",))
    assert "fits old/main.py as well" in finding.message
    assert finding.fix == ()


def test_an_error_further_down_does_not_stop_the_launch_above() -> None:
    text = "python main.py\n\nif true; then\n"
    case = Case("later", text, "")
    assert migrated(case, text).startswith("torchrun")
