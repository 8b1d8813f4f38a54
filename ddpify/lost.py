"""Copies of the helpers that a project imports and does not have: all else was committed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpify.names import CORE, EARLIER_NAMES, METRICS, RUNTIME_NAMES

_IMPORT = re.compile(
    rf"^[ \t]*from[ \t]+[\w.]*\b(?:{CORE}|{METRICS})(?:_ddpify)?[ \t]+import\b", re.M
)
_HELPERS = RUNTIME_NAMES | {earlier for earlier, _ in EARLIER_NAMES}


@dataclass(frozen=True)
class LostImport:
    """The line of a file that takes helpers from a module that is not there."""

    file: Path
    line: int
    module: str
    names: frozenset[str]

    @property
    def path(self) -> str:
        """The name of the file that is missing."""
        return f"{self.module.rpartition('.')[2]}.py"


def lost(importing: Iterable[Path], files: Iterable[Path]) -> tuple[LostImport, ...]:
    """The imports of helpers in some files, from none of a project's ``files``."""
    found = [one for file in importing for one in _imports(file)]
    there = {file.stem for file in files} if found else set()
    return tuple(one for one in found if one.module.rpartition(".")[2] not in there)


def _imports(file: Path) -> Iterator[LostImport]:
    text = file.read_bytes().decode("utf-8", "replace")
    try:
        nodes = tuple(ast.walk(ast.parse(text))) if _IMPORT.search(text) else ()
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _IMPORT.match(f"from {node.module} import"):
            names = frozenset(one.name for one in node.names)
            if names <= _HELPERS:
                yield LostImport(file, node.lineno, node.module or "", names)
