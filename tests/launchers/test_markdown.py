"""Code blocks of documentation are rewritten as in the table, and nothing beside them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify.launchers import findings
from ddpify.rules.base import Severity
from tests.launchers.applied import migrated
from tests.launchers.cases import Case, table

CASES = table("markdown.txt", "README.md")
REWRITTEN = tuple(case for case in CASES if case.before != case.after)
UNTOUCHED = tuple(case for case in CASES if case.before == case.after)


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_blocks_are_rewritten(case: Case) -> None:
    assert migrated(case, case.before) == case.after


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_windows_line_ends_are_kept(case: Case) -> None:
    after = migrated(case, case.before.replace("\n", "\r\n"))
    assert re.sub(r"(?<!\r)\n", "\r\n", after) == case.after.replace("\n", "\r\n")


@pytest.mark.parametrize("case", REWRITTEN, ids=lambda case: case.id)
def test_rewritten_blocks_have_nothing_left_to_do(case: Case) -> None:
    assert findings(case.path, case.after, case.entries) == ()


@pytest.mark.parametrize("case", UNTOUCHED, ids=lambda case: case.id)
def test_text_is_left_alone(case: Case) -> None:
    assert findings(case.path, case.before, case.entries) == ()


def test_what_is_surely_a_launch_is_named() -> None:
    text = "```bash\nmpirun -n 4 python main.py\n```\n"
    (finding,) = findings("README.md", text, ("main.py",))
    assert "mpirun starts its own processes" in finding.message
    assert str(finding.site) == "README.md:2"


def test_documentation_is_noted_only() -> None:
    (finding,) = findings("README.md", "    python main.py\n", ("main.py",))
    assert finding.severity is Severity.NOTE


def test_tabs_and_odd_bytes_do_not_move_positions() -> None:
    text = b"[\xff]: \xff\n\n\tpython main.py \xe9\n\n- \tpython main.py\n"
    case = Case("bytes", text.decode("utf-8", "surrogateescape"), "", "README.md")
    after = migrated(case, case.before).encode("utf-8", "surrogateescape")
    started = b"torchrun --standalone --nproc_per_node=gpu"
    assert after == text.replace(b"\tpython", b"\t" + started, 1)


def test_the_reader_is_loaded_only_to_read_documentation() -> None:
    code = (
        "import sys; from ddpify.launchers import findings;"
        "findings('run.sh', 'python main.py', ['main.py']);"
        "print([m for m in sys.modules if m.startswith('markdown_it')])"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
