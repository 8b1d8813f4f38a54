"""DDP003: a command line with torch.distributed.launch."""

from __future__ import annotations

from ddpify.rules.base import Example, Rule, Severity
from ddpify.rules.examples.process import PROCESS

_OLD = "python -m torch.distributed.launch --nproc_per_node=8 main.py"
_NEW = "torchrun --nproc_per_node=8 main.py"

# Found by ddpify/launchers/legacy.py, in files that are not Python.
RULE = Rule(
    "DDP003",
    "legacy-launcher",
    "torch.distributed.launch is deprecated: it warns at every start, and since torch 2.0 it passes"
    " --local-rank, which stops a program whose parser says only --local_rank. torchrun sets"
    " LOCAL_RANK, passes nothing, and takes the same other options but --use-env. A warning where"
    " that stops the program as far as it is seen, else a note. The line is mended where the"
    " program reads LOCAL_RANK, or asks for no such option.",
    "torch.distributed.launch documentation; timm#1724, BasicSR#626; BUGS L05",
    bad=(
        Example((*PROCESS.files, ("run.sh", f"#!/bin/sh\n{_OLD}  # DDP003\n"))),
        Example((*PROCESS.files, ("README.md", f"# Digits\n\n```bash\n{_OLD}  # DDP003\n```\n"))),
    ),
    good=(
        Example((*PROCESS.files, ("run.sh", f"#!/bin/sh\n{_NEW}\n"))),
        Example((*PROCESS.files, ("run.sh", f'#!/bin/sh\necho "{_OLD} was once"\n{_NEW}\n'))),
    ),
    severity=Severity.WARNING,
)
