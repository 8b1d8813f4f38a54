"""`--help` and `--version` answer at once: nothing heavy is imported for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ddpify

HEAVY = ("black", "jinja2", "libcst", "mcp", "numpy", "pygls", "rich", "torch", "tree_sitter")
PROGRAM = f"""
import sys
from ddpify.cli import main
code = main(sys.argv[1:])
print("heavy:", sorted(set(sys.modules) & set({HEAVY!r})))
sys.exit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--help"], id="help"),
        pytest.param(["--version"], id="version"),
        pytest.param(["migrate", "--help"], id="migrate"),
        pytest.param(["diff", "--help"], id="diff"),
        pytest.param(["check", "--help"], id="check"),
        pytest.param(["init", "--help"], id="init"),
        pytest.param(["plan", "--help"], id="plan"),
        pytest.param(["rule", "--help"], id="rule"),
        pytest.param(["mcp", "--help"], id="mcp"),
        pytest.param(["schema", "--help"], id="schema"),
        pytest.param(["verify", "--help"], id="verify"),
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("heavy: []\n")


def test_python_m_ddpify_is_the_command() -> None:
    command = [sys.executable, "-m", "ddpify", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"ddpify, version {ddpify.__version__}\n"
