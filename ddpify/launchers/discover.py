"""The launchers of a project that mention a migrated entry.

The folder is walked once; the text test is cheap, so that no parser is loaded for scripts
that cannot matter.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterator
from enum import Enum
from pathlib import Path

_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
_MAKEFILE = re.compile(r"(?:GNU)?[Mm]akefile|.*\.mk")
_MARKDOWN = re.compile(r".*\.(?:md|markdown)", re.IGNORECASE)
_PAST = re.compile(r"(?:change|history|news|release)", re.IGNORECASE)  # what was said stays said
_SHEBANG = re.compile(rb"#!.*\b(?:ba|da|z|k)?sh\b")
_SKIPPED = frozenset(("node_modules", "site-packages", "__pycache__", "venv", "env", "virtualenv"))
_MADE_NAME = r"\$[({]?\w+[)}]?[\w-]*\.py\b"  # main_$task.py
_QUOTABLE, _QUOTES = re.compile(r"\W"), r"[\"'\\]*"  # my\ train.py, 'it'"'"'s.py'
_DEPTH = 6
_LARGEST = 512 * 1024


class LauncherKind(Enum):
    """What a launcher is written in."""

    SHELL = "shell"
    MAKE = "make"
    MARKDOWN = "markdown"


def kind_of(path: str) -> LauncherKind | None:
    """What the file is, by its name; None if that does not say it is a launcher."""
    name = posixpath.basename(path)
    if name.endswith(_SUFFIXES):
        return LauncherKind.SHELL
    if _MAKEFILE.fullmatch(name):
        return LauncherKind.MAKE
    return LauncherKind.MARKDOWN if _MARKDOWN.fullmatch(name) else None


def discover(root: Path, entries: Collection[str]) -> tuple[str, ...]:
    """Launchers under ``root`` that name an entry, as sorted posix paths relative to it."""
    names = _mentions(entries)
    if names is None:
        return ()
    return tuple(
        sorted(
            file.relative_to(root).as_posix()
            for file in _scripts(root, _DEPTH)
            if names.search(file.read_bytes())
        )
    )


def _mentions(entries: Collection[str]) -> re.Pattern[bytes] | None:
    """Matches the file name of an entry, or `-m` with its module name."""
    parts: list[str] = []
    for entry in entries:
        name = posixpath.basename(entry)
        stem = posixpath.basename(posixpath.dirname(entry)) if name == "__main__.py" else name
        module = re.escape(stem.removesuffix(".py"))
        shown = _QUOTABLE.sub(lambda found: _QUOTES + re.escape(found[0]) + _QUOTES, name)
        parts.append(rf"(?<![\w-]){shown}\b|-\w*m\s*(?:\\\s+)?(?:[\w.]+\.)?{module}\b")
    return re.compile("|".join((*parts, _MADE_NAME)).encode()) if parts else None


def _scripts(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as listing:
            found = sorted(listing, key=lambda item: item.name)
    except PermissionError:  # not the user's to run either
        return
    for item in found:
        if item.is_dir(follow_symlinks=False):
            if depth and _may_hold_scripts(item):
                yield from _scripts(Path(item.path), depth - 1)
        elif item.is_file(follow_symlinks=False) and _is_script(item):
            yield Path(item.path)


def _may_hold_scripts(item: os.DirEntry[str]) -> bool:
    if item.name.startswith(".") or item.name in _SKIPPED:
        return False
    # true where it may not be asked, too
    return not os.path.exists(os.path.join(item.path, "pyvenv.cfg"))


def _is_script(item: os.DirEntry[str]) -> bool:
    if not 0 < item.stat(follow_symlinks=False).st_size <= _LARGEST:
        return False
    kind = kind_of(item.name)
    if kind is not None:
        return kind is not LauncherKind.MARKDOWN or _PAST.match(item.name) is None
    if "." in item.name:
        return False
    with open(item.path, "rb") as file:
        return _SHEBANG.match(file.readline(200)) is not None
