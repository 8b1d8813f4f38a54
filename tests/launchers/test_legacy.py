"""Lines with torch.distributed.launch: which are found, and what is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.launchers.legacy import findings
from ddpify.rules.base import Severity

READS = 'import os\n\nlocal_rank = int(os.environ["LOCAL_RANK"])\n'
ASKS = 'import argparse\n\np = argparse.ArgumentParser()\np.add_argument("--local_rank")\n'
REQUIRES = READS + 'p.add_argument("--local_rank", type=int, required=True)\n'
OLD = "python -m torch.distributed.launch"


def _mended(root: Path, path: str, text: str) -> str:
    """``text`` with the fixes of all findings."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits = [edit for finding in findings(root, [file]) for edit in finding.fix]
    for edit in sorted(edits, key=lambda one: one.site.span, reverse=True):
        span = edit.site.span
        begin, end = starts[span.line - 1] + span.column, starts[span.end_line - 1]
        text = text[:begin] + edit.code + text[end + span.end_column :]
    return text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"{OLD} main.py", "torchrun main.py"),
        (f"{OLD} --nproc_per_node=4 main.py -b 8", "torchrun --nproc_per_node=4 main.py -b 8"),
        (f"{OLD} --use_env --nproc_per_node 4 main.py", "torchrun --nproc_per_node 4 main.py"),
        (f"{OLD} --nproc_per_node 4 --use-env main.py", "torchrun --nproc_per_node 4 main.py"),
        ("python3 -u -m torch.distributed.launch main.py", "torchrun main.py"),
        (
            "python -W ignore -m torch.distributed.launch main.py",
            "python -W ignore -m torch.distributed.run main.py",
        ),
        (
            '"$PYTHON" -m torch.distributed.launch main.py',
            '"$PYTHON" -m torch.distributed.run main.py',
        ),
        (f"OMP_NUM_THREADS=1 nohup {OLD} main.py &", "OMP_NUM_THREADS=1 nohup torchrun main.py &"),
        (f"cd src && {OLD} main.py | tee log", "cd src && torchrun main.py | tee log"),
        (f"{OLD} main.py --use_env", "torchrun main.py --use_env"),  # the program's own option
        (f'{OLD} \\\n  --use_env \\\n  "main.py"', 'torchrun \\\n  "main.py"'),
    ],
)
def test_line_of_a_program_that_reads_the_environment(tmp_path: Path, old: str, new: str) -> None:
    for folder in ("", "src"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "main.py").write_text(READS)
    assert _mended(tmp_path, "run.sh", f"#!/bin/bash\n{old}\n") == f"#!/bin/bash\n{new}\n"


@pytest.mark.parametrize(
    ("program", "mended"),
    [
        (READS, True),
        (READS + ASKS, True),
        ("import torch\n", True),
        (ASKS, False),
        (REQUIRES, False),
    ],
)
def test_mended_where_the_option_is_not_needed(tmp_path: Path, program: str, mended: bool) -> None:
    (tmp_path / "main.py").write_text(program)
    line = f"{OLD} --nproc_per_node=2 main.py\n"
    assert (_mended(tmp_path, "run.sh", line) != line) is mended
    (found,) = findings(tmp_path, [tmp_path / "run.sh"])
    assert found.advice
    assert bool(found.fix) is mended


def test_program_that_imports_its_parser(tmp_path: Path) -> None:
    (tmp_path / "options.py").write_text(ASKS)
    (tmp_path / "main.py").write_text("from options import p\n")
    assert _mended(tmp_path, "run.sh", f"{OLD} main.py\n") == f"{OLD} main.py\n"


def test_program_that_is_not_there(tmp_path: Path) -> None:
    for line in (f"{OLD} main.py\n", f"{OLD} $SCRIPT\n", f"{OLD} --nproc_per_node=2 $@\n"):
        assert _mended(tmp_path, "run.sh", line) == line
    with_env = f"{OLD} --use_env $SCRIPT\n"
    assert _mended(tmp_path, "run.sh", with_env) == "torchrun $SCRIPT\n"


@pytest.mark.parametrize(
    "text",
    [
        f'echo "{OLD} main.py"\n',
        f"# {OLD} main.py\n",
        "grep -r -m torch.distributed.launch .\n",
        "torchrun main.py  # not torch.distributed.launch\n",
        "python -m torch.distributed.run main.py\n",
    ],
)
def test_what_is_not_started(tmp_path: Path, text: str) -> None:
    (tmp_path / "main.py").write_text(READS)
    (tmp_path / "run.sh").write_text(text)
    assert findings(tmp_path, [tmp_path / "run.sh"]) == []


def test_makefile_and_markdown(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(READS)
    make = "PYTHON ?= python3\n\ntrain:\n\t$(PYTHON) -m torch.distributed.launch main.py\n"
    assert _mended(tmp_path, "Makefile", make) == make.replace(".launch", ".run")
    told = f"# Use `{OLD}`\n\n```bash\n$ {OLD} main.py\nepoch 1\n```\n\n    {OLD} main.py\n"
    new = f"# Use `{OLD}`\n\n```bash\n$ torchrun main.py\nepoch 1\n```\n\n    torchrun main.py\n"
    assert _mended(tmp_path, "README.md", told) == new
    assert _mended(tmp_path, "docs/README.md", told) == new  # people start it from the root


def test_site_is_of_the_words_that_start_it(tmp_path: Path) -> None:
    (tmp_path / "job.slurm").write_text(f"#!/bin/bash\nsrun {OLD} main.py\n")
    (found,) = findings(tmp_path, [Path("job.slurm")])
    assert str(found.site) == "job.slurm:2"
    assert (found.site.span.column, found.site.span.end_column) == (5, 5 + len(OLD))


PARSES = "args = p.parse_args()\n"
BOTH = ASKS.replace('"--local_rank"', '"--local-rank", "--local_rank"')


@pytest.mark.parametrize(
    ("program", "options", "stops"),
    [
        (ASKS + PARSES, "", True),
        (READS + "import argparse\np = argparse.ArgumentParser()\n" + PARSES, "", True),
        (ASKS + PARSES, " --use_env", False),
        (BOTH + PARSES, "", False),
        (ASKS + "args, rest = p.parse_known_args()\n", "", False),
        (READS, "", False),
        (None, "", False),
    ],
)
def test_a_warning_where_the_program_stops_at_the_option(
    tmp_path: Path, program: str | None, options: str, stops: bool
) -> None:
    if program is not None:
        (tmp_path / "main.py").write_text(program)
    (tmp_path / "run.sh").write_text(f"{OLD}{options} main.py\n")
    (found,) = findings(tmp_path, [tmp_path / "run.sh"])
    assert found.severity is (Severity.WARNING if stops else Severity.NOTE)
    assert ("does not know" in found.message) is stops


def test_the_parser_of_an_imported_program_is_not_the_programs(tmp_path: Path) -> None:
    script = f"import argparse\n\nif __name__ == '__main__':\n    {ASKS[17:]}    {PARSES}"
    (tmp_path / "tools.py").write_text(script.replace("\np.add", "\n    p.add"))
    (tmp_path / "main.py").write_text("import tools\n\nprint(tools)\n")
    (tmp_path / "run.sh").write_text(f"{OLD} main.py\n")
    (found,) = findings(tmp_path, [tmp_path / "run.sh"])
    assert found.severity is Severity.NOTE
