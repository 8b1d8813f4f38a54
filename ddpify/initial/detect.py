"""What can be seen of a project and its machine without asking: each guess with its reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpify import discover
from ddpify.clusters.model import Taken
from ddpify.clusters.taken import taken
from ddpify.launchers import nodes_of
from ddpify.outcome import Refusal
from ddpify.settings import LauncherName

_PATIENCE = 10  # seconds; a driver that hangs is no reason to
_SCHEDULERS: tuple[tuple[str, LauncherName], ...] = (
    ("sbatch", "slurm"),
    ("srun", "slurm"),
    ("kubectl", "kubernetes"),
)


@dataclass(frozen=True)
class Detected:
    """A project as it seems to be; ``because`` says what each guess rests on.

    ``launcher`` is "" for this machine alone.
    """

    root: Path
    entries: tuple[str, ...]
    launcher: LauncherName
    nodes: int
    gpus: int | None
    because: tuple[str, ...]


def detect(paths: Sequence[Path]) -> Detected | Refusal:
    """What ``paths``, a folder or scripts, hold; a Refusal where nothing is there to train."""
    found = discover.entries(paths)
    if isinstance(found, Refusal):
        return found
    root = found.root
    entries = tuple(one.resolve().relative_to(root).as_posix() for one in found.scripts)
    python = tuple(file.relative_to(root).as_posix() for file in discover.python_files(root))
    line = next((one for one in (taken(root, e, python) for e in entries) if one.place), Taken())
    started = [f"started by {line.place}"] if line.place else []
    launcher, why = _launcher(line)
    gpus, counted = _gpus(line)
    because = (*started, why, *([counted] if counted else []))
    return Detected(root, entries, launcher, _nodes(root, line), gpus, because)


def _launcher(line: Taken) -> tuple[LauncherName, str]:
    if line.is_batch:
        return "slurm", f"Slurm: {line.place.partition(':')[0]} is a batch script"
    for command, launcher in _SCHEDULERS:
        if shutil.which(command):
            return launcher, f"{launcher}: {command} is installed here"
    return "", "no scheduler: neither sbatch nor kubectl is installed here"


def _gpus(line: Taken) -> tuple[int | None, str]:
    """How many a node has: as the project says, else as this machine has."""
    if line.gpus:
        return line.gpus, f"{line.gpus} GPUs per node: as {line.place.partition(':')[0]} says"
    here = _gpus_here()
    return (here, f"{here} GPU{'s' * (here != 1)} in this machine") if here else (None, "")


def _gpus_here() -> int:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=_PATIENCE
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(row.startswith("GPU ") for row in listed.stdout.splitlines())


def _nodes(root: Path, line: Taken) -> int:
    path = line.place.rpartition(":")[0]
    if line.is_batch:
        return nodes_of((root / path).read_text("utf-8", "replace"))
    inside = os.environ.get("SLURM_JOB_NUM_NODES", "")
    return int(inside) if inside.isdecimal() else 1
