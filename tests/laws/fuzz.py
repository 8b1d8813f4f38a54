"""Programs with small faults: a line lost, doubled, moved or indented, a word put for another."""

from __future__ import annotations

import random
import re

_WORD = re.compile(r"\b[A-Za-z_][A-Za-z_0-9]*\b")


def mutated(text: str, draw: random.Random) -> str:
    """The text after one to four small faults; half of them leave Python that can be read."""
    lines = text.splitlines() or [""]
    for _ in range(draw.randint(1, 4)):
        draw.choice((_lose, _double, _move, _indent, _swap, _swap, _swap))(lines, draw)
        lines = lines or [""]
    return "\n".join(lines) + "\n"


def _lose(lines: list[str], draw: random.Random) -> None:
    del lines[draw.randrange(len(lines))]


def _double(lines: list[str], draw: random.Random) -> None:
    at = draw.randrange(len(lines))
    lines.insert(at, lines[at])


def _move(lines: list[str], draw: random.Random) -> None:
    line = lines.pop(draw.randrange(len(lines)))
    lines.insert(draw.randint(0, len(lines)), line)


def _indent(lines: list[str], draw: random.Random) -> None:
    at = draw.randrange(len(lines))
    lines[at] = f"    {lines[at]}" if draw.random() < 0.5 else lines[at].removeprefix("    ")


def _swap(lines: list[str], draw: random.Random) -> None:
    """Another word of the program, or an odd one, in the place of one."""
    places = [(n, m.span()) for n, line in enumerate(lines) for m in _WORD.finditer(line)]
    if places:
        at, (start, end) = draw.choice(places)
        other, span = draw.choice(places)
        word = draw.choice((lines[other][slice(*span)], "None", "0", "*", "self", "lambda: 0"))
        lines[at] = lines[at][:start] + word + lines[at][end:]
