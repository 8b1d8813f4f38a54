"""Makefiles are rewritten as in the table, and make runs the same programs from them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ddpify.launchers import findings
from tests.launchers.applied import migrated
from tests.launchers.cases import Case, table
from tests.launchers.test_execute import SLURM, STUBS, processes, program

CASES = table("makefiles.txt", "Makefile")
REWRITTEN = tuple(case for case in CASES if case.before != case.after)
UNTOUCHED = tuple(case for case in CASES if case.before == case.after)
RUN = tuple(case for case in REWRITTEN if case.runs)
MAKE = shutil.which("make") or "make"  # where it is missing the tests fail


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in STUBS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def calls(case: Case, text: str, stubs: Path, *arguments: str) -> list[list[str]]:
    """How the stubs were called by make."""
    project, records = (stubs.parent / name for name in ("project", "records"))
    for folder in (project, records):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    file = project / case.path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    (project / "main.py").touch()
    environment = {"PATH": f"{stubs}:{os.environ['PATH']}", "RECORDS": str(records)} | SLURM
    result = subprocess.run(
        [MAKE, "--no-print-directory", "-f", file.name, *arguments],
        cwd=file.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert not re.search("not found|unbound|syntax", result.stderr), result.stderr
    return sorted(r.read_bytes().decode().split("\0")[:-1] for r in records.iterdir())


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_makefile_is_rewritten(case: Case) -> None:
    assert migrated(case, case.before) == case.after


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_rewritten_makefile_has_nothing_left_to_do(case: Case) -> None:
    assert findings(case.path, case.after, case.entries) == ()


@pytest.mark.parametrize("case", UNTOUCHED, ids=lambda case: case.id)
def test_makefile_is_left_alone(case: Case) -> None:
    assert findings(case.path, case.before, case.entries) == ()


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.id)
def test_make_runs_the_same_program(case: Case, stubs: Path) -> None:
    before = calls(case, case.before, stubs)
    after = calls(case, case.after, stubs)
    assert before
    assert sorted(map(program, after)) == sorted(map(program, before))


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.id)
def test_there_is_one_process_per_listed_gpu(case: Case, stubs: Path) -> None:
    for call in calls(case, case.after, stubs):
        if call[1] != "unset":
            # what one target exports, make hands on to those it needs
            assert processes(call) in ("gpu", str(len(call[1].split(","))))


@pytest.mark.parametrize("case", RUN, ids=lambda case: case.id)
def test_make_shows_what_it_would_run(case: Case, stubs: Path) -> None:
    assert calls(case, case.after, stubs, "--dry-run", "--warn-undefined-variables") == []


@pytest.mark.parametrize(
    ("case", "argument", "count"),
    [
        ("plain", "NPROC_PER_NODE=3", "3"),
        ("its own count, in another folder", "X=1", "2"),
        ("variables, prefixes, continuation", "GPU_IDS=4,5,6,7", "4"),
        ("exported by make", "CUDA_VISIBLE_DEVICES=7", "1"),
    ],
)
def test_the_count_follows_what_the_user_gives(
    case: str, argument: str, count: str, stubs: Path
) -> None:
    (found,) = (one for one in RUN if one.id == case)
    assert processes(calls(found, found.after, stubs, argument)[0]) == count


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("CMD = $(PYTHON) main.py\nt:\n\t$(CMD)\n", "text that make", id="variable"),
        pytest.param("define C\npython main.py\nendef\nt:\n\t$(C)\n", "text that", id="define"),
        pytest.param("t:\n\t$(call run,python main.py)\n", "text that make", id="function"),
        pytest.param("t:\n\t$(RUN) main.py\n", r"what \$\(RUN\) stands", id="unknown"),
        pytest.param("t:\n\t$$RUN main.py\n", r"what \$\$RUN stands", id="unknown of shell"),
        pytest.param(
            "t:\n\tfor s in 1; do python main.py\n\tdone\n", "cannot be read", id="broken"
        ),
    ],
)
def test_what_is_not_rewritten_is_named(text: str, words: str) -> None:
    (finding,) = findings("Makefile", text, ("main.py",))
    assert re.search(words, finding.message)
    assert finding.fix == ()
    line = text.split("\n")[finding.site.span.line - 1]
    assert "main.py" in line or "define" in line
