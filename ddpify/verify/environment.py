"""The environment in which a copy of a project runs: as the user's, but it leads into the copy."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# What an outer launcher (torchrun, mpirun, srun) told us about our own place is not about theirs.
_OUTER: Final = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(?:LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|ROLE_NAME"
    r"|MASTER_(?:ADDR|PORT)|(?:TORCHELASTIC|PET|OMPI_COMM_WORLD|PMI|PMIX)_.*"
    r"|SLURM_(?:PROCID|LOCALID|NODEID|NTASKS|NPROCS|NTASKS_PER_NODE)|TORCHELASTIC"
)
_INSTALLABLE: Final = ("pyproject.toml", "setup.py", "setup.cfg")


def child_environment(
    extra: Mapping[str, str], copy: Path, project: Path | None, sharing: int
) -> dict[str, str]:
    """For a process of which ``sharing`` run at a time.

    ``extra`` are variables set for this run, ``project`` is what ``copy`` is a copy of.
    """
    outer = {name: text for name, text in os.environ.items() if not _OUTER.fullmatch(name)}
    set_by_user = {**outer, **extra}
    path = [*_importable(copy), *(moved(p, copy, project) for p in _entries(set_by_user))]
    threads = str(max(1, _cores() // max(1, sharing)))
    return {
        "OMP_NUM_THREADS": threads,
        **set_by_user,
        **({"PYTHONPATH": os.pathsep.join(path)} if path else {}),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def moved(text: str, copy: Path, project: Path | None) -> str:
    """A path, or an argument with one, that leads into the project leads into its copy."""
    if project is None:
        return text
    return re.sub(rf"(?<![\w/.-]){re.escape(str(project))}(?![^/,:;])", lambda _: str(copy), text)


def _entries(environment: Mapping[str, str]) -> list[str]:
    text = environment.get("PYTHONPATH", "")
    return text.split(os.pathsep) if text else []


def _importable(copy: Path) -> list[str]:
    """Folders that come before an editable install, which leads to the user's own files.

    Only a project that can be installed needs them, and none that would hide the standard
    library from every process.
    """
    if not any((copy / name).exists() for name in _INSTALLABLE):
        return []
    folders = [folder for folder in (copy, copy / "src") if folder.is_dir()]
    return [str(folder) for folder in folders if not _hides_library(folder)]


def _hides_library(folder: Path) -> bool:
    names = {path.stem for path in folder.glob("*.py")}
    names |= {path.parent.name for path in folder.glob("*/__init__.py")}
    return not names.isdisjoint(sys.stdlib_module_names)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
