"""Which rules still read syntax trees themselves. The list only gets shorter.

What several rules ask of a program's text has a word in `rules/shared`: `uses`, `fields`,
`quotients`, `syntax`, `written`.
"""

from __future__ import annotations

from pathlib import Path

import ddpify.rules

# Their fixes write new text from the nodes that facts hand out. DDP302 also finds data_parallel()
# in the forward of models, which facts do not enter.
FIXES = "DDP101 DDP103 DDP201 DDP203 DDP206 DDP302 DDP702 DDP951 DDP953 DDP978".split()
# What hooks of Lightning do with the Trainer is looked for in their text: no reader has a Trainer.
HOOKS = "DDP955 DDP957 DDP969 DDP977 DDP979".split()
# DDP813 reads the forward of models, most of which no reader enters; DDP310 follows a name through
# the rounds of a loop.
FOLLOW = "DDP310 DDP813".split()


def test_no_other_rule_reads_trees() -> None:
    files = Path(ddpify.rules.__file__).parent.glob("*/ddp*.py")
    found = {file.stem[:6].upper() for file in files if "import ast\n" in file.read_text("utf-8")}
    assert found == {*FIXES, *HOOKS, *FOLLOW}
