"""Programs that are trained in seconds, and what else a line or two of them may be. ::

    == name: same
    @
    -            total += loss.item()
    +            total += loss.item() * x.size(0)
    @
    ~total / len(loader)
    >total / len(data)
    @
    =            optimizer.step()
    +            scheduler.step()

Lines after ``-`` become those after ``+``, those after ``=`` stay; ``~`` and ``>`` are parts of
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
TABLES = {  # whose lines are written otherwise, and where
    "program.txt": (
        "variants.txt",
        "optimizers.txt",
        "schedules.txt",
        "data.txt",
        "shown.txt",
        "batches.txt",
        "windows.txt",
    ),
    "text_program.txt": ("text.txt",),
    "series_program.txt": ("series.txt",),
    "gan_program.txt": ("gan.txt",),
    "single_program.txt": ("singles.txt",),
}


def variants() -> dict[str, str]:
    """All programs by their names."""
    found: dict[str, str] = {}
    for program, table in _tables():
        found |= read(table, (HERE / program).read_text())
    return found


def wanted() -> dict[str, str]:
    """What is right for each of them."""
    return {name: word for _, table in _tables() for name, word in outcomes(table).items()}


def _tables() -> Iterator[tuple[str, str]]:
    for program, names in TABLES.items():
        for name in names:
            yield program, (HERE / name).read_text()


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
        old, new = _said(lines, "-=~"), _said(lines, "+=>")
        assert old in program, f"nothing to change: {old}"
        program = program.replace(old, new, 1)
    return program


def _said(lines: list[str], marks: str) -> str:
    """Whole lines after the first mark, and parts of a line after the second."""
    whole, part = marks[:-1], marks[-1]
    texts = [line[1:] + "\n" for line in lines if line[:1] in whole]
    texts += [line[1:].replace("\\n", "\n") for line in lines if line[:1] == part]
    return "".join(texts)
