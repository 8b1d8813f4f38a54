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


_COUNT = 150


@cache
def sources() -> tuple[Source, ...]:
    """Files below 20 kB that compile and that libcst keeps as they are, in random order."""
    folder = Path(ast.__file__).parent
    files = [file for file in sorted(folder.rglob("*.py")) if file.stat().st_size < 20_000]
    files = [file for file in files if not any(part in str(file) for part in _SKIPPED)]
    random.Random(0).shuffle(files)
    found: list[Source] = []
    for file in files:
        source = _usable(file, str(file.relative_to(folder)))
        if source is not None:
            found.append(source)
        if len(found) == _COUNT:
            break
    return tuple(found)


def part(number: int, of: int, count: int = _COUNT) -> tuple[Source, ...]:
    """One of ``of`` parts of the first ``count``, so that collecting the tests reads no file."""
    return sources()[:count][number::of]


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
