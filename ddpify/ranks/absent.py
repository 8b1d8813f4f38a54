"""What one rank has and another has not is used on both: the result of ``comm.reduce``, a name."""

from __future__ import annotations

import ast

from ddpify.ranks.events import Lacking
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankValue
from ddpify.ranks.protocol import RankMachine


def note_absent(m: RankMachine, f: RankFrame, value: RankValue, node: ast.AST) -> None:
    """Keep that a value is used where it has to be something, and is None on a rank that is here.

    Not where a condition that is not known leads here: it may be one on the rank.
    """
    one, other = value.atoms
    if (one is None) is (other is None) or not value.by_rank:
        return
    rank = 0 if one is None else 1
    if _comes_here(m, rank):
        m.run.absent.append(Lacking(m.tick(), value, rank, node, f.module, f.function))


def note_unset(m: RankMachine, f: RankFrame, value: RankValue, node: ast.Name) -> None:
    """Keep that a rank reads a name that only the other one has set: ``if rank == 0: x = 1``."""
    held = f.partial.get(node.id)
    if held is not None and held[0] is value and _comes_here(m, held[1]):
        where = (node, f.module, f.function)
        m.run.absent.append(Lacking(m.tick(), value, held[1], *where, held[2]))


def _comes_here(m: RankMachine, rank: int) -> bool:
    """Whether a rank surely is here, and nothing catches what it raises."""
    guards = (guard for guard in m.here.guards if not guard.starts_script)
    known = not any(guard.is_open(rank) for guard in guards)
    return known and not m.here.swallows and bool(m.live & (1 << rank))
