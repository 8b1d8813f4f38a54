"""Programs are started on a terminal, as their users start them; nobody types on it."""

from __future__ import annotations

import subprocess
import sys

from ddpify.verify.terminal import silent_terminal

# The first lines of many copies of one progress bar.
PROGRAM = """
import os, sys
rows, columns = os.popen("stty size", "r").read().split()
print(columns, sys.stdin.isatty(), repr(sys.stdin.readline()))
"""


def test_it_has_a_size_and_no_input() -> None:
    with silent_terminal() as stdin:
        for _ in range(2):  # several ranks share it
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM],
                stdin=stdin,
                capture_output=True,
                text=True,
                timeout=30,
                start_new_session=True,
                check=False,
            )
            assert done.stdout == "80 True ''\n", done.stderr
