"""Real code to try things on: files of the standard library, as nobody wrote them for us."""

from __future__ import annotations

import ast
import random
import warnings
from functools import cache
from pathlib import Path

import libcst as cst

from ddpify.source import Source, UnreadableSource

_SKIPPED = ("site-packages", "lib2to3", "test_future_stmt", "__pycache__")


@cache
def sources(count: int, seed: int = 0) -> tuple[Source, ...]:
    """``count`` files below 40 kB that parse and that libcst keeps as they are."""
    folder = Path(ast.__file__).parent
    files = [file for file in sorted(folder.rglob("*.py")) if file.stat().st_size < 20_000]
    files = [file for file in files if not any(part in str(file) for part in _SKIPPED)]
    random.Random(seed).shuffle(files)
    found: list[Source] = []
    for file in files:
        source = _usable(file, str(file.relative_to(folder)))
        if source is not None:
            found.append(source)
        if len(found) == count:
            break
    return tuple(found)


def part(number: int, of: int, count: int, seed: int = 0) -> tuple[Source, ...]:
    """One of ``of`` parts, so that collecting the tests reads no file."""
    return sources(count, seed)[number::of]


def _usable(file: Path, path: str) -> Source | None:
    try:
        source = Source.read(file, path)
        source.parse()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source.raw, path, "exec")
        text = cst.parse_module(source.text).code
    except (UnreadableSource, SyntaxError, ValueError, cst.ParserSyntaxError):
        return None
    return source if text == source.text else None
