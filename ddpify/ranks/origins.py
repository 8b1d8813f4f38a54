"""Why values differ between ranks, and the symbols that stand for what is not known of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from ddpify.source import Site

LONGEST_KEY = 1000

ITEM = "Item"  # the operator of ``x[y]`` in a Symbol
SLICE = "Slice"  # that of ``x[a:b]``: ``(Slice, x, a, b, None)``
TEXT = "Text"  # that of an f-string, whose operands are its parts
SYNCED = "synced"  # the key of whatever has become the same on all ranks


@dataclass(frozen=True)
class Symbol:
    """A part of a value that is not known; equal keys are equal values.

    ``parts``: the operator and the operands (atoms) of an expression that it stands for, by the
    names that `ast` has for them: ``("Mod", a, b)``, ``("Gt", a, b)``.
    """

    key: str
    parts: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        # The text of both operands is in that of a sum: `b = a + a`, `c = b + b` doubles each time.
        if len(self.key) > LONGEST_KEY:
            ends, digest = LONGEST_KEY // 4, sha256(self.key.encode()).hexdigest()
            short = f"{self.key[:ends]}<{digest}>{self.key[-ends:]}"
            object.__setattr__(self, "key", short)

    def __hash__(self) -> int:
        """Of the key alone, which is all that is compared."""
        return hash(self.key)


class DividedByRank(Symbol):
    """One of several values that are each another on each rank: ``rank == 0`` or ``rank == 1``."""


@dataclass(frozen=True)
class Origin:
    """Why a value may differ between ranks: ``kind`` is one of the constants below.

    ``under``: the one entry of a dict, of which nothing else is known, that differs. ``worded``:
    only what a text says differs, not whether there is one.
    """

    kind: str
    what: str
    site: Site
    under: str = ""
    worded: bool = False

    @property
    def told(self) -> str:
        """The reason, for people."""
        return f"{self.what}: {_TOLD.get(self.kind, 'the number of the rank')}"

    def __hash__(self) -> int:
        """Alike in every process, so that sets of origins have one order and reports, too."""
        return hash((self.site.span.line, self.site.span.column, len(self.what)))


def put_under(name: str, origins: Iterable[Origin]) -> frozenset[Origin]:
    """Why a dict differs whose entry ``name`` differs for these reasons."""
    return frozenset(replace(one, under=name) for one in origins)


def found_under(name: str, origins: frozenset[Origin]) -> frozenset[Origin]:
    """Why the entry ``name`` of a dict may differ: not because another one does."""
    if all(one.under in ("", name) for one in origins):
        return origins
    return frozenset(one for one in origins if one.under in ("", name))


def of_anything(origins: frozenset[Origin]) -> frozenset[Origin]:
    """Why a value may differ that is made from the whole dict, or the whole text."""
    if not any(one.under or one.worded for one in origins):
        return origins
    return frozenset(replace(one, under="", worded=False) for one in origins)


def of_text(origins: Iterable[Origin]) -> frozenset[Origin]:
    """Why a text may differ that is there on all ranks."""
    return frozenset(replace(one, worded=True) for one in origins)


# Kinds of Origin. RANK: the rank itself, or what is computed from it; LOCAL_RANK: its number on the
# node; DATA: samples of this rank, a loss, a metric; CLOCK, RANDOM, FILES: as they say.
RANK, LOCAL_RANK, DATA, CLOCK, RANDOM, FILES = "rank local-rank data clock random files".split()


_TOLD = {
    LOCAL_RANK: "the number of the rank on its node",
    DATA: "each rank has its own",
    CLOCK: "each process has its own",
    RANDOM: "each process draws its own",
    FILES: "each machine has its own",
}
IDENTITY = frozenset({RANK, LOCAL_RANK})


def of_one_rank(origins: Iterable[Origin]) -> bool:
    """Whether a value is of the rank's samples, of what it draws, or comes from its number."""
    return any(one.kind in (DATA, RANDOM, *IDENTITY) for one in origins)


HASH = "hash() of a text"  # what an Origin says of it: each process salts its own


COMPUTED = "computed from "  # so begins what an Origin says of arithmetic with the rank


# What an Origin says of data that the rank picks. STRIDE: ``rows[rank::world]``, of rows that were
# not cut or added to before, as one does to make their number a multiple.
# PICKED: entries chosen by what they hold, of which each rank has its own number.
PICKED = "as many as this rank's samples give"
# PIECE: ``torch.chunk(rows, world)[rank]``, of which the last may be shorter.
# BATCHES: what a loader gives that deals, as many samples on each rank.
BATCHES = "batches of this rank"
PART, STRIDE, PIECE = "this rank's part", "every n-th is this rank's", "this rank's piece"
