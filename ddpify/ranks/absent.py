"""What one rank has and another has not is used on both: the result of ``comm.reduce``."""

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
    if (one is None) is (other is None) or not value.by_rank or m.here.swallows:
        return
    rank = 0 if one is None else 1
    guards = (guard for guard in m.here.guards if not guard.starts_script)
    known = not any(guard.is_open(rank) for guard in guards)
    if known and m.live & (1 << rank):
        m.run.absent.append(Lacking(m.tick(), value, rank, node, f.module, f.function))
