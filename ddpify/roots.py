"""Where a project begins, and which of its folders are not its own. Loads nothing."""

from __future__ import annotations

from pathlib import Path

ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
# What an archive of a project has at its top, which has no `.git`.
ARCHIVE_MARKS = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
SKIPPED = frozenset("node_modules site-packages __pycache__ build dist venv env".split())


def project_root(entry: Path) -> Path:
    """The nearest folder above ``entry`` that looks like a project's top, else its own folder."""
    home = entry.resolve().parent
    for marks in (ROOT_MARKS, ARCHIVE_MARKS):
        for folder in (home, *home.parents):
            if any((folder / mark).exists() for mark in marks):
                return folder
    return home


def prefix(root: Path) -> str:
    """What leads from the current folder to ``root``: down, or from the top."""
    way = shown(root.resolve())
    return "" if way == "." else f"{way}/"


def shown(path: Path) -> str:
    """How an absolute path is named: from the current folder where it lies in it."""
    here = Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()
