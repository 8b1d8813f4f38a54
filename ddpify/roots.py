"""Where a project begins, and which of its folders are not its own."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ddpify.installs import installed
from ddpify.python.imports import Finder, added_folders
from ddpify.python.libraries import is_known

WEAK = "requirements.txt"  # examples within a project have one, too
ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", WEAK)
# What an archive of a project has at its top, which has no `.git`.
ARCHIVE_MARKS = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
SKIPPED = frozenset("node_modules site-packages __pycache__ build dist venv env".split())
MAX_DEPTH = 6
_IMPORTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)
_ON_PATH = re.compile(r"^[^#\n]*\bPYTHONPATH[ \t]*[:?]?=[ \t]*([^\s;&]+)", re.MULTILINE)
_HERE = (".", "$PWD", "${PWD}", "$(pwd)", "$(PWD)", "`pwd`")
_LAUNCHERS = ("README*", "*.sh", "Makefile")


def project_root(entry: Path) -> Path:
    """The nearest folder above ``entry`` that looks like a project's top, else its own folder.

    One that only says what it needs may be a part of a project: it is where its scripts provably
    import a package from that lies above.
    """
    home = entry.resolve().parent
    for marks in (ROOT_MARKS, ARCHIVE_MARKS):
        for folder in (home, *home.parents):
            found = [mark for mark in marks if (folder / mark).exists()]
            if found:
                return (
                    _imported_from(folder, entry.resolve()) if found == [WEAK] else None
                ) or folder
    return home


def is_marked(root: Path) -> bool:
    """Whether a folder looks like a project's top, and is not only where a script lies."""
    return any((root / mark).exists() for mark in (*ROOT_MARKS, *ARCHIVE_MARKS))


def beyond(root: Path, name: str) -> list[str]:
    """The folders above a project's in which a module or package of this name lies, from there."""
    found = [above for above in _above(root) if Finder(above).absolute(above, name) is not None]
    return [os.path.relpath(above, root) for above in found]


def _above(folder: Path) -> list[Path]:
    """The folders above a part of a project, up to the first that is a project's for sure."""
    marks = {*ROOT_MARKS, *ARCHIVE_MARKS} - {WEAK}
    tops = (top for top in folder.parents if any((top / mark).exists() for mark in marks))
    top = next(tops, None)
    return [above for above in folder.parents if top is not None and above.is_relative_to(top)]


def _imported_from(folder: Path, entry: Path) -> Path | None:
    """The nearest folder above from which Python provably imports all that lies there.

    A package that only lies there may be another one than the one that is installed.
    """
    files = {
        file: file.read_text("utf-8", "replace") for file in python_files(folder) if file.is_file()
    }
    tops = {name for text in files.values() for name in _IMPORTED.findall(text)}
    own = Finder(folder)
    names = [n for n in sorted(tops) if not is_known(n) and own.absolute(folder, n) is None]
    paths = {entry.stem, *_IMPORTED.findall(files.get(entry, ""))}
    added = [at for file, text in files.items() if file.stem in paths for at in _added(file, text)]
    for above in _above(folder) if names else ():
        finder = Finder(above)
        finder.added += [at for at in added if at.is_relative_to(above)]
        found = {name: finder.absolute(folder, name) for name in names}
        places = {n: file.parents[file.stem == "__init__"] for n, file in found.items() if file}
        sure = {*finder.added, *([above] if _on_path(above, folder, list(files)) else ())}
        installs = installed(above)
        if places and all(at in sure or at == installs.get(n) for n, at in places.items()):
            return above
    return None


def _added(file: Path, text: str) -> list[Path]:
    """What a script puts on ``sys.path``."""
    try:
        return added_folders(ast.parse(text), file, file.parent) if "sys.path" in text else []
    except (SyntaxError, ValueError):
        return []


def _on_path(above: Path, folder: Path, scripts: list[Path]) -> bool:
    """Whether a launcher or README starts one of the scripts with ``above`` on PYTHONPATH."""
    for at in (above, folder):
        for launcher in (file for name in _LAUNCHERS for file in at.glob(name) if file.is_file()):
            text = launcher.read_text("utf-8", "replace").replace('"', "")
            parts = {part for said in _ON_PATH.findall(text) for part in said.split(":")}
            meant = {at for part in parts if part in _HERE}
            meant |= {(at / part).resolve() for part in parts if part.startswith("..")}
            if above in meant and any(os.path.relpath(one, at) in text for one in scripts):
                return True
    return False


def python_files(root: Path) -> Iterator[Path]:
    """The Python files below ``root``, hidden and installed ones left out."""
    return files_below(root, ".py")


def files_below(root: Path, *suffixes: str) -> Iterator[Path]:
    """The files below ``root`` whose names end so, hidden and installed ones left out."""
    for folder, names, files in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        names[:] = sorted(
            n for n in names if n not in SKIPPED and not n.startswith(".") and depth < MAX_DEPTH
        )
        for name in sorted(files):
            if name.endswith(suffixes):
                yield Path(folder) / name


def prefix(root: Path) -> str:
    """What leads from the current folder to ``root``: down, or from the top."""
    way = shown(root.resolve())
    return "" if way == "." else f"{way}/"


def shown(path: Path) -> str:
    """How an absolute path is named: from the current folder where it lies in it."""
    here = Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()
