"""Whether a program is meant for the processes of one node."""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.ranks.origins import LOCAL_RANK
from ddpify.ranks.run import Run
from ddpify.ranks.words import LOCAL_NAMES, SAMPLER
from ddpify.rules.shared.placing import DIST_INIT

_PLACES: Final = {DIST_INIT: 4, SAMPLER: 2}


def one_node(run: Run) -> bool:
    """Whether the local rank is the rank of the group, or of a sampler: right on one node only."""
    return any(map(_takes_local, run.named(*_PLACES)))


def _takes_local(call: RankCall) -> bool:
    """Whether the rank that is given is the local one, or what the program calls so."""
    place = (_PLACES[call.name], "rank")
    rank, node = call.arg(*place), call.node_of(*place)
    if rank is None or node is None:
        return False
    return rank.has(LOCAL_RANK) or ast.unparse(node).rpartition(".")[2] in LOCAL_NAMES
