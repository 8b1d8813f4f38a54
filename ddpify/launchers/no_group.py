"""Lines that start several processes of a program which knows of one: as many trainings of their
own, each through all of the data.

Only what is certain: the line says how many, the program and all of the project that it imports
trains with torch itself, and there is no word in them by which a process could know of others.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ddpify.launchers.at_once import own_options, start_of
from ddpify.launchers.reading import pieces
from ddpify.launchers.script import Script
from ddpify.rules.base import Finding, Severity
from ddpify.site import Site
from ddpify.source import Source, UnreadableSource

CODE: Final = "DDP101"
# By one of these a program may learn of its peers, run what is not read, or be told apart.
_PEERS: Final = re.compile(
    r"(?i:distributed|accelerat|lightning|horovod|deepspeed|transformers|ignite|fabric|\bmpi|\bray\b)"
    r"|(?<!LOCAL_)RANK\b|WORLD_SIZE|MASTER_|TORCHELASTIC|getpid|importlib|__import__|\bexec\(|\beval\("
    r"|subprocess|multiprocessing|os\.system|flock|hydra|environ(?!\.get\(\"LOCAL_RANK|\[\"LOCAL_RANK)"
)
_LOCAL: Final = re.compile(r"LOCAL_RANK")
# What surely asks no other process for anything.
_KNOWN: Final = sys.stdlib_module_names | set(
    "torch torchvision torchaudio numpy scipy sklearn pandas matplotlib PIL tqdm yaml".split()
)
# What a program may do with its number on the node and still be the same program.
_DEVICES: Final = frozenset("device set_device cuda to print".split())


def findings(root: Path, files: Sequence[Path], python: Sequence[Path]) -> list[Finding]:
    """One finding per line that starts several of a program that trains alone."""
    here = root.resolve()
    inside = (file for file in python if file.resolve().is_relative_to(here))
    paths = {file.resolve().relative_to(here).as_posix(): file for file in inside}
    found = []
    for file in files:
        raw = (root / file).read_bytes() if (root / file).is_file() else b""
        if b"torchrun" not in raw and b"torch.distributed" not in raw:
            continue
        path = (root / file).resolve().relative_to(here).as_posix()
        text = Source.plain(raw, root / file, path).text
        for piece in pieces(path, text):
            if not piece.certain or piece.brief:
                continue
            for site, entry, number in _starts(path, piece.text):
                if piece.holds(site) and entry in paths and _trains_alone(entry, paths):
                    found.append(piece.placed(_finding(site, entry, number)))
    return found


def _finding(site: Site, entry: str, number: int) -> Finding:
    return Finding(
        CODE,
        site,
        f"this starts {number} processes, and {entry} opens no group: each trains a model of its"
        " own on all of the data",
        Severity.WARNING,
        advice="start it with plain python, or let `ddpify migrate` make it one training",
    )


def _starts(path: str, text: str) -> Iterator[tuple[Site, str, int]]:
    """(torchrun, program, processes) of each line that says both itself."""
    script = Script.parse(path, text)
    for command in script.commands:
        start = start_of(command)
        if start is None or "cd " in text or "PET_" in text:
            continue
        after = command.words[command.words.index(start) + 1 :]
        told = own_options(after)
        number = (told or {}).get("nproc_per_node") or ""
        programs = [word.literal for word in after if word.tail.endswith(".py")]
        if number.isdecimal() and int(number) > 1 and programs and programs[0]:
            folder = posixpath.dirname(path)
            entry = posixpath.normpath(posixpath.join(folder, programs[0]))
            yield script.site(start.start, start.end), entry, int(number)


def _trains_alone(entry: str, paths: dict[str, Path]) -> bool:
    """Whether a program trains, and nothing in it could know of another process."""
    todo, seen = [entry], {entry}
    trees: list[ast.AST] = []
    while todo:
        path = todo.pop()
        try:
            text = Source.from_bytes(paths[path].read_bytes(), paths[path], path).text
            tree = ast.parse(text)
        except (OSError, SyntaxError, UnreadableSource):
            return False
        if _PEERS.search(text) or not _is_same(tree, text):
            return False
        trees.append(tree)
        for name in _imported(tree):
            more = _file_of(name, path, entry, paths)
            if more is None and name.partition(".")[0] not in _KNOWN:
                return False
            if more is not None and more not in seen:
                seen.add(more)
                todo.append(more)
    called = {
        node.func.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    return {"backward", "step"} <= called


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def _file_of(name: str, path: str, entry: str, paths: dict[str, Path]) -> str | None:
    """The file of the project that an import reads; of a package, none that is understood."""
    folder = posixpath.dirname(path if name.startswith(".") else entry)
    place = posixpath.normpath(posixpath.join(folder, name.lstrip(".").replace(".", "/") + ".py"))
    return place if place in paths and not name.startswith("..") else None


def _is_same(tree: ast.AST, text: str) -> bool:
    """Whether a program is the same on each process, but for its device and what it prints or
    saves: it asks for its number on the node once, and only for that."""
    if not _LOCAL.search(text):
        return True
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    asked = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value == "LOCAL_RANK"]
    if len(asked) != 1 or len(_LOCAL.findall(text.replace("local_rank", ""))) != 1:
        return False
    node: ast.AST = asked[0]
    while not isinstance(node, ast.stmt):
        node = above[node]
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    name = node.targets[0].id
    used = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    used = [one for one in used if isinstance(one.ctx, ast.Load)]
    return all(_is_of_device(above[one], above) for one in used)


def _is_of_device(holder: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """``torch.device("cuda", local_rank)``, ``f"cuda:{local_rank}"``, ``if local_rank == 0``."""
    if isinstance(holder, ast.Call):
        function = holder.func
        word = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
        return word in _DEVICES
    if isinstance(holder, ast.FormattedValue):
        return "cuda:" in ast.unparse(above[holder])
    if isinstance(holder, ast.Compare):
        return all(isinstance(one, ast.Constant) for one in holder.comparators)
    return isinstance(holder, ast.UnaryOp) and isinstance(holder.op, ast.Not)
