"""What a partial migration leaves: a comment at each place that is left, and a guard.

The guard ends the program at its start, so that it is not run by accident before all is done.
Who reads the program reads it as if the guard were not there: that is how it will run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

CODE: Final = "DDP008"
MARK: Final = "# ddpify: TODO"
_SAID: Final = "ddpify: TODO: "  # what the guard says begins so
_MARKED = re.compile(r"^[ \t]*# ddpify: TODO\b:?[ \t]*(.*(?:\n[ \t]*#   .*)*)", re.MULTILINE)
WAY: Final = "do it, delete the comment, and run `ddpify migrate` again"


def marks(text: str) -> Iterator[tuple[int, str]]:
    """The line of each comment, and its sentence."""
    if MARK not in text:
        return
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for found in _MARKED.finditer(text):
        sentence = " ".join(line.strip().lstrip("# ") for line in found[1].splitlines())
        yield text.count("\n", 0, found.start()) + 1, sentence


def is_guard(node: ast.stmt) -> bool:
    """Whether a statement is ``raise SystemExit("ddpify: TODO: …")``."""
    match node:
        case ast.Raise(
            exc=ast.Call(func=ast.Name(id="SystemExit"), args=[ast.Constant(str(said))])
        ):
            return said.startswith(_SAID)
    return False


def without_guard(tree: ast.Module) -> ast.Module:
    """The program behind the guard."""
    tree.body = [node for node in tree.body if not is_guard(node)]
    return tree


def guard_in(text: str) -> ast.stmt | None:
    """The guard of a file that parses, if it has one."""
    nodes = ast.parse(text).body if _SAID in text else []
    return next((node for node in nodes if is_guard(node)), None)


def guard(sentences: list[str], width: int) -> list[str]:
    """The lines of the statement that ends the program with the first of them."""
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    said = f"{_SAID}{sentences[0]}{more}. `ddpify check` lists what is left to do by hand;"
    said += " `ddpify migrate` takes this line away once the comments are gone."
    pieces = _wrapped(said.replace("\\", "\\\\").replace('"', '\\"'), width - 8)
    return ["raise SystemExit(", *(f'    "{piece}"' for piece in pieces), ")"]


def comment(sentence: str, indent: str, width: int) -> list[str]:
    """The lines of the comment at one place."""
    first, *rest = _wrapped(sentence, max(40, width - len(indent) - len(MARK) - 1))
    return [f"{indent}{MARK} {first.rstrip()}", *(f"{indent}#   {line.rstrip()}" for line in rest)]


def _wrapped(text: str, width: int) -> list[str]:
    """Pieces that come to the text, blanks at their ends."""
    pieces = [""]
    for word in re.findall(r"\S+\s*", text):
        if pieces[-1] and len(pieces[-1]) + len(word) > width:
            pieces.append("")
        pieces[-1] += word
    return pieces
