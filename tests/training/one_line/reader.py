"""One program that is trained in seconds, and what else a line or two of it may be. ::

    == name: same
    @
    -            total += loss.item()
    +            total += loss.item() * x.size(0)
    @
    ~total / len(loader)
    >total / len(data)

Lines after ``-`` become those after ``+``; ``~`` and ``>`` are parts of a line.
"""

from __future__ import annotations

import re


def read(text: str, program: str) -> dict[str, str]:
    """Each variant of a program by its name."""
    found: dict[str, str] = {}
    for block in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, *changes = re.split(r"^@\n", block, flags=re.MULTILINE)
        found[name.partition(":")[0]] = _changed(program, changes)
    return found


def outcomes(text: str) -> dict[str, str]:
    """What is right for each: the word after its name."""
    return dict(re.findall(r"^== (\w+): (\w+)$", text, flags=re.MULTILINE))


def _changed(program: str, changes: list[str]) -> str:
    for change in changes:
        lines = change.splitlines()
        old, new = _said(lines, "-~"), _said(lines, "+>")
        assert old in program, f"nothing to change: {old}"
        program = program.replace(old, new, 1)
    return program


def _said(lines: list[str], marks: str) -> str:
    """Whole lines after the first mark, and parts of a line after the second."""
    whole, part = marks
    texts = [line[1:] + "\n" for line in lines if line[:1] == whole]
    texts += [line[1:].replace("\\n", "\n") for line in lines if line[:1] == part]
    return "".join(texts)
