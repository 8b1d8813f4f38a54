"""Which Python trains: that of the project, unless a flag names another one."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Final

OWN: Final = "ddpify's own"
FOLDERS: Final = (".venv", "venv")
_PYTHONS: Final = ("bin/python", "Scripts/python.exe", "python.exe")  # in an environment
_LIBRARIES: Final = ("lib/python3*/site-packages", "Lib/site-packages")
_NAMED: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")  # what an active environment is told by


@dataclass(frozen=True)
class ProjectPython:
    """An interpreter, and in a few words why it is this one."""

    python: str
    why: str


def chosen(script: Path, environment: Mapping[str, str] | None = None) -> ProjectPython:
    """The first of the project's environments that has a torch; else ddpify's own interpreter.

    In this order: the active virtual environment, `.venv` or `venv` beside the script or above,
    conda's. Where nobody has a torch it is the first one, which says so when it is asked.
    """
    active = os.environ if environment is None else environment
    found = list(_environments(script, active))
    with_torch = [one for folder, one in found if _has_torch(folder)]
    own = [ProjectPython(sys.executable, OWN)] if find_spec("torch") else []
    return next(
        iter((*with_torch, *own, *(one for _, one in found))), ProjectPython(sys.executable, OWN)
    )


def _environments(script: Path, active: Mapping[str, str]) -> Iterator[tuple[Path, ProjectPython]]:
    named = [(Path(active[name]), name) for name in _NAMED if active.get(name)]
    beside = [
        (above / name, f"{name} of the project")
        for above in takewhile(_private, script.resolve().parents)
        for name in FOLDERS
    ]
    of_venv = [pair for pair in named if pair[1] == "VIRTUAL_ENV"]
    for folder, why in (*of_venv, *beside, *(pair for pair in named if pair not in of_venv)):
        files = (folder.absolute() / name for name in _PYTHONS)
        for python in (one for one in files if os.access(one, os.X_OK) and one.is_file()):
            yield folder, ProjectPython(str(python), why)


def _private(folder: Path) -> bool:
    """Not one, as /tmp is, into which anybody may put an interpreter."""
    return not folder.stat().st_mode & stat.S_IWOTH


def _has_torch(environment: Path) -> bool:
    """Without starting it: importing torch takes seconds, and most have none."""
    if any(one for at in _LIBRARIES for one in environment.glob(f"{at}/torch/__init__.py")):
        return True
    try:
        text = (environment / "pyvenv.cfg").read_text("utf-8", errors="replace")
    except OSError:
        return False
    return "include-system-site-packages = true" in text.lower()
