"""The keyword ``async`` of Python before 3.7, read although it has been a reserved word since.

``x.cuda(async=True)`` is how PyTorch spelled ``non_blocking=True`` until 0.4. A file that holds it
is parsed with another name of the same length in its place, so that every position stays; the tree
then says ``non_blocking``, as today's torch does.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

ASYNC = "async"
NOW = "non_blocking"
_MOVES = ("cuda", "copy_", "type")  # the methods that took it
_STAND_INS = ("asyn_", "asy__", "as___", "a____", "_sync", "_asyn")


@dataclass(frozen=True)
class Respelled:
    """A text that parses: ``stand_in`` stands where it said ``async``."""

    text: str
    stand_in: str


def respelled(text: str) -> Respelled | None:
    """A text with its keywords ``async`` under another name; None where it has none."""
    stand_in = next((name for name in _STAND_INS if name not in text), None)
    if ASYNC not in text or stand_in is None:
        return None
    lines = list(io.StringIO(text, newline=""))
    places = list(_keywords(lines))
    for row, column in places:
        line = lines[row]
        lines[row] = line[:column] + stand_in + line[column + len(ASYNC) :]
    return Respelled("".join(lines), stand_in) if places else None


def _keywords(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Line (from 0) and column of each name ``async`` before an equals sign, in brackets."""
    rest = iter(lines)
    words: list[tokenize.TokenInfo] = []
    try:
        for word in tokenize.generate_tokens(lambda: next(rest, "")):
            if word.type not in (tokenize.NL, tokenize.COMMENT):
                words.append(word)
    except (tokenize.TokenError, SyntaxError):
        return
    for before, word, after in zip(words, words[1:], words[2:], strict=False):
        if (word.string, after.string) == (ASYNC, "=") and before.string in ("(", ","):
            yield word.start[0] - 1, word.start[1]


def modernized(tree: ast.Module, stand_in: str) -> list[ast.Call] | None:
    """The calls of a parsed stand-in that move tensors, which now say ``non_blocking``.

    None where it stands for something else: a parameter, or what a function of the project takes.
    """
    calls = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == stand_in:
            return None
        if not isinstance(node, ast.Call):
            continue
        legacy = [one for one in node.keywords if one.arg == stand_in]
        if legacy:
            moves = isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES
            if not moves or len(legacy) > 1 or any(one.arg == NOW for one in node.keywords):
                return None
            legacy[0].arg = NOW
            calls.append(node)
    return calls
