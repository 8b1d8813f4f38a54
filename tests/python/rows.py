"""The table of Python constructs: does a loader reach `probe(...)` through each of them?

A file of `constructs/` is a family of rows. A row begins with `== its name`; `-- facts: why` and
`-- ranks: why` below it say that a reader does not follow it, and why that is so or may stay so.
`## path.py` starts another file of the row. On the lines marked `#: arrives` loaders are made
that reach `probe`; one that is made where it says `#: not` must not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "constructs"
READERS = ("facts", "ranks")
HEAD = "from torch.utils.data import DataLoader\n\ndata, other = [1, 2], [3, 4]\n\n"
TAIL = '\nif __name__ == "__main__":\n    print("done")\n'  # for ranks to read it as a script
Line = tuple[str, int]


@dataclass(frozen=True)
class Row:
    """One construct: its program and the readers that are known not to follow it."""

    family: str
    name: str
    files: tuple[tuple[str, str], ...]
    gaps: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        """What the test is called."""
        return f"{self.family}: {self.name}"

    def lines(self, mark: str) -> frozenset[Line]:
        """The lines that are marked so."""
        return frozenset(
            (path, number)
            for path, text in self.files
            for number, line in enumerate(text.splitlines(), 1)
            if line.endswith(f"#: {mark}")
        )

    def followed(self, arrived: frozenset[Line]) -> bool:
        """Whether what arrived, by the lines it is made on, is what has to."""
        return self.lines("arrives") <= arrived and not self.lines("not") & arrived


def all_rows() -> list[Row]:
    """The whole table."""
    return [row for file in sorted(FOLDER.glob("*.txt")) for row in _rows(file)]


def _rows(file: Path) -> Iterator[Row]:
    for part in re.split(r"^== ", file.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        gaps = re.findall(r"^-- (\w+): (.*)\n", rest, flags=re.MULTILINE)
        code = re.sub(r"^-- .*\n", "", rest, flags=re.MULTILINE)
        yield Row(file.stem, name, tuple(_files(code)), tuple(gaps))


def _files(code: str) -> Iterator[tuple[str, str]]:
    names = ["main.py", *re.findall(r"^## (.*)$", code, flags=re.MULTILINE)]
    for name, text in zip(names, re.split(r"^## .*\n", code, flags=re.MULTILINE), strict=True):
        head = HEAD if re.search(r"DataLoader|\bdata\b", text) else ""
        yield name, head + text.rstrip("\n") + "\n" + (TAIL if name == "main.py" else "")
