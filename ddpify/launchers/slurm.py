"""How many tasks and nodes `srun` starts a command on.

torchrun starts the processes of one node itself, so `srun` has to start it once; more
tasks or nodes would train as many times over.
"""

from __future__ import annotations

import re

from ddpify.launchers.script import Script, Word

_DIRECTIVE = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_OPTIONS = {
    "nodes": re.compile(r"(?:^|\s)(?:--nodes(?:=|\s+)|-N\s*)(\S+)"),
    "tasks": re.compile(r"(?:^|\s)(?:--ntasks(?:=|\s+)|-n\s*)(\S+)"),
    "tasks per node": re.compile(r"(?:^|\s)--ntasks-per-node(?:=|\s+)(\S+)"),
}


def srun_problem(script: Script, words: tuple[Word, ...]) -> str:
    """Why a command behind `srun` is not rewritten; "" if one task on one node runs it."""
    options = " ".join(word.text for word in words)
    directives = " ".join(line.split(" #")[0] for line in _DIRECTIVE.findall(script.text))
    for what, pattern in _OPTIONS.items():
        found = pattern.search(options) or pattern.search(directives)
        value = found.group(1).strip("\"'") if found else "1"
        if value in ("1", "1-1"):
            continue
        if not re.fullmatch(r"\d+(-\d+)?", value):
            return f"how many {what} srun starts, {value}, is not known"
        if what == "nodes":
            return f"srun starts it on {value} nodes"
        return f"srun starts it as {value} {what}, each of which would start torchrun"
    return ""
