"""What the sections of a plan are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ddpify.advice.model import Cell

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Table:
    """``left`` are the columns with words; numbers stand on the right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset({0})

    def spelled(self, told: Callable[[str], str]) -> Table:
        """With each word as ``told`` has it."""
        return replace(self, rows=tuple(tuple(map(told, row)) for row in self.rows))


@dataclass(frozen=True)
class Section:
    title: str
    parts: tuple[str | Table, ...]

    def spelled(self, told: Callable[[str], str]) -> Section:
        """With each place as ``told`` has it."""
        parts = (told(p) if isinstance(p, str) else p.spelled(told) for p in self.parts)
        return Section(told(self.title), tuple(parts))


def mebibytes(size: int) -> str:
    """One decimal."""
    return f"{size / MEBIBYTE:.1f}"


def cell(given: Cell, shown: Callable[[int], str] = mebibytes) -> str:
    """The number where it is known, else the formula."""
    if not given.formula:
        return "-"
    return given.formula if given.size is None else shown(given.size)
