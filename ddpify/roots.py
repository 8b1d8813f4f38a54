"""Where a project begins, and which of its folders are not its own. Loads nothing."""

from __future__ import annotations

import os
from pathlib import Path

ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
SKIPPED = frozenset("node_modules site-packages __pycache__ build dist venv env".split())


def project_root(entry: Path) -> Path:
    """The nearest folder above ``entry`` that looks like a project's top, else its own folder."""
    home = entry.resolve().parent
    for folder in (home, *home.parents):
        if any((folder / mark).exists() for mark in ROOT_MARKS):
            return folder
    return home


def prefix(root: Path) -> str:
    """What leads from the current folder to ``root``: down, or from the top."""
    way = os.path.relpath(root.resolve(), Path.cwd())
    if way == ".":
        return ""
    return f"{root.resolve() if way.startswith('..') else Path(way).as_posix()}/"
