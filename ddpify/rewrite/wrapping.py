"""Break a line that an edit made too long, and leave the other lines of its statement alone.

Black sets one item to a line. Where a file does not, that would rewrite a statement of which an
edit meant three words.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_OPENING, _CLOSING = "([{", ")]}"
_ONE_ITEM_A_LINE = re.compile(r",[ \t]*(?:#.*)?\n\s*\)")
_IMPORT = re.compile(r"^(from \S+ import )([^(\n]+)\n", re.MULTILINE)
_DEEPEST = 48


@dataclass(frozen=True)
class _Break:
    """A comma at which a line may end, and the column at which the rest goes on."""

    depth: int
    row: int
    column: int
    indent: int


def sets_one_item_a_line(code: str) -> bool:
    """Whether a file is laid out as black does it: a comma, then a parenthesis on its own line."""
    return _ONE_ITEM_A_LINE.search(code.replace("\r\n", "\n")) is not None


def wrapped(text: str, is_too_long: Callable[[str], bool], width: int) -> str | None:
    """The statements with each such line broken behind commas, None where that is not enough."""
    text = _IMPORT.sub(lambda one: _in_parentheses(one, is_too_long), text)
    while True:
        lines = text.split("\n")
        row = next((n for n, line in enumerate(lines) if is_too_long(line)), None)
        if row is None:
            return text
        place = _best(text, row + 1, width)
        if place is None or place.indent >= place.column or place.indent > _DEEPEST:
            return None
        head, tail = lines[row][: place.column], lines[row][place.column :].lstrip(" ")
        lines[row] = f"{head}\n{' ' * place.indent}{tail}"
        text = "\n".join(lines)


def _in_parentheses(found: re.Match[str], is_too_long: Callable[[str], bool]) -> str:
    line = found.group(0)
    return f"{found[1]}({found[2]})\n" if is_too_long(line.rstrip("\n")) else line


def _best(text: str, row: int, width: int) -> _Break | None:
    """The last comma that fits, of the outermost brackets that have one on this line."""
    try:
        breaks = [one for one in _breaks(text) if one.row == row]
    except (tokenize.TokenError, IndentationError):
        return None
    outer = min((one.depth for one in breaks), default=0)
    fitting = [one for one in breaks if one.depth == outer and one.column <= width]
    return max(fitting, key=lambda one: one.column, default=None)


def _breaks(text: str) -> Iterator[_Break]:
    """The commas of calls, tuples, lists and imports that end with their statement."""
    tokens = _outside_strings(text)
    opened: list[int] = []
    commas: list[tuple[int, tuple[int, ...]]] = []
    ending: set[int] = set()
    for number, token in enumerate(tokens):
        if token.type != tokenize.OP:
            continue
        if token.string in _OPENING:
            opened.append(number)
        elif token.string in _CLOSING:
            start = opened.pop()
            if _ends_with_statement(tokens, number) and not _is_index(tokens, start):
                ending.add(start)
        elif token.string == "," and opened:
            commas.append((number, tuple(opened)))
    for comma, around in commas:
        row, column = tokens[comma].end
        if ending.issuperset(around) and tokens[comma + 1].start[0] == row:
            yield _Break(len(around), row, column, tokens[around[-1] + 1].start[1])


def _outside_strings(text: str) -> list[tokenize.TokenInfo]:
    """The tokens of the statements; newer Pythons see some inside an f-string, too."""
    depth, found = 0, []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        depth -= name.endswith("STRING_END")
        if not depth and name not in ("NL", "COMMENT"):
            found.append(token)
        depth += name.endswith("STRING_START")
    return found


def _ends_with_statement(tokens: list[tokenize.TokenInfo], close: int) -> bool:
    """Whether only brackets, commas and what follows a comma come after this bracket."""
    following = tokens[close + 1]
    return following.type == tokenize.NEWLINE or following.string in (*_CLOSING, ",", ":")


def _is_index(tokens: list[tokenize.TokenInfo], start: int) -> bool:
    before = tokens[start - 1] if start else None
    if tokens[start].string != "[" or before is None:
        return False
    return before.type == tokenize.NAME or before.string in (")", "]")
