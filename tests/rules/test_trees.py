"""Which rules still read syntax trees themselves. The list only gets shorter.

What several rules ask of a program's text is in `rules/shared/syntax.py` and `written.py`.
"""

from __future__ import annotations

from pathlib import Path

import ddpify.rules

# Their fixes write new text from the nodes that facts hand out.
FIXES = """
    DDP101 DDP103 DDP201 DDP203 DDP206 DDP302 DDP303 DDP305 DDP404 DDP406
    DDP504 DDP702
""".split()
# They follow sums, slices, branches and handlers through a function, each in its own way.
FOLLOW = """
    DDP310 DDP813
""".split()


def test_no_other_rule_reads_trees() -> None:
    files = Path(ddpify.rules.__file__).parent.glob("*/ddp*.py")
    found = {file.stem[:6].upper() for file in files if "import ast\n" in file.read_text("utf-8")}
    assert found == {*FIXES, *FOLLOW}
