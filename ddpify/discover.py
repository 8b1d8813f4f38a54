"""From what the user named (a script, a launcher, a folder) to the entry scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpify.launchers import LauncherKind, kind_of, started
from ddpify.notebooks import SUFFIX
from ddpify.outcome import Refusal
from ddpify.roots import project_root
from ddpify.roots import python_files as python_files
from ddpify.source import Source, UnreadableSource

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMED = 20  # scripts of which one is to be chosen


@dataclass(frozen=True)
class Entries:
    """The scripts to read, and the project's top folder.

    ``guessed`` (resolved) were found in a folder or a launcher: they are run, and may not train.
    """

    root: Path
    scripts: tuple[Path, ...]
    guessed: frozenset[Path] = frozenset()


def entries(paths: Sequence[Path]) -> Entries | Refusal:
    """The entry scripts that ``paths`` name, or why there are none."""
    scripts: list[Path] = []
    guessed: set[Path] = set()
    for path in paths:
        found = _scripts(path)
        if isinstance(found, Refusal):
            return found
        if found != [path]:
            guessed |= {script.resolve() for script in found if script not in scripts}
        scripts += [script for script in found if script not in scripts]
    root = project_root(scripts[0])
    outside = [s for s in scripts if not s.resolve().is_relative_to(root)]
    if outside and len(guessed) == len(scripts):
        return Refusal(f"{paths[0]}: holds several projects; name one script: {_listed(scripts)}")
    if outside:
        return Refusal(f"{outside[0]}: not in the same project as {scripts[0]} ({root})")
    return Entries(root, tuple(scripts), frozenset(guessed))


def _listed(scripts: Sequence[Path]) -> str:
    named = ", ".join(map(str, scripts[:_NAMED]))
    more = len(scripts) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def _scripts(path: Path) -> list[Path] | Refusal:
    if not path.exists():
        return Refusal(f"{path}: no such file or folder")
    if path.is_dir():
        return _in_folder(path)
    if kind_of(path.name) in (LauncherKind.SHELL, LauncherKind.MAKE):
        return _launched_by(path)
    if path.suffix == SUFFIX:
        export = f"jupyter nbconvert --to script {path}"
        return Refusal(f"{path}: a notebook; export it as a script first: {export}")
    if path.suffix not in (".py", ""):
        return Refusal(f"{path}: not a Python script")
    return [path]


def _in_folder(folder: Path) -> list[Path] | Refusal:
    """Scripts that look as if they are run: they are read as entries if they train."""
    files = list(python_files(folder))
    if not files:
        return Refusal(f"{folder}: holds no Python scripts")
    trains = [f for f in files if b".backward(" in f.read_bytes()]
    mains = [f for f in files if _runs(f)]
    own = [f for f in mains if f in trains] or [f for f in mains if f.parent == folder]
    chosen = own if trains and own else [f for f in trains if _runs_at_once(f, files)]
    if not chosen:
        return Refusal(f"{folder}: no training script found; name the script that is run")
    return chosen


def _runs(file: Path) -> bool:
    text = file.read_bytes()
    return b"__main__" in text or b"ArgumentParser(" in text


def _runs_at_once(file: Path, others: Sequence[Path]) -> bool:
    """Whether its top level trains, or calls what the file defines, and no other file imports it: a
    script without a guard."""
    imported = re.compile(
        rb"^\s*(?:from|import)\s[^#\n]*\b%s\b" % re.escape(file.stem.encode()), re.M
    )
    if any(imported.search(other.read_bytes()) for other in others if other != file):
        return False
    try:
        body = Source.read(file, str(file)).parse().body
    except UnreadableSource:
        return False
    defined = {one.name for one in body if isinstance(one, _DEFINITIONS)}
    calls = [
        node.func
        for statement in body
        if not isinstance(statement, _DEFINITIONS)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    ]
    return any(
        func.attr == "backward" if isinstance(func, ast.Attribute) else func.id in defined
        for func in calls
        if isinstance(func, (ast.Attribute, ast.Name))
    )


def _launched_by(script: Path) -> list[Path] | Refusal:
    root = project_root(script)
    text = script.read_bytes().decode("utf-8", "surrogateescape")
    files = {p.relative_to(root).as_posix(): p for p in python_files(root)}
    named = [path for path, file in files.items() if file.stem in text]
    path = script.resolve().relative_to(root).as_posix()
    found = [files[entry] for entry in started(path, text, named, tuple(files))]
    if not found:
        return Refusal(f"{script}: starts no Python script of this project")
    return found
