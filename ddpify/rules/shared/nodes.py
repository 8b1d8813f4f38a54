"""Whether a program is meant for the processes of one node."""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.interest import says
from ddpify.ranks.model import RankCall
from ddpify.ranks.origins import LOCAL_RANK
from ddpify.ranks.run import Run
from ddpify.ranks.words import LOCAL_NAMES, SAMPLER
from ddpify.rules.shared.placing import DIST_INIT
from ddpify.rules.shared.syntax import scope

# What tells a node from the others.
NODE_VARIABLES: Final = (
    "GROUP_RANK",
    "NODE_RANK",
    "SLURM_NODEID",
    "HOSTNAME",
    "TMPDIR",
    "SLURM_TMPDIR",
)
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


def asks_for_node(call: RankCall) -> bool:
    """Whether what makes a call reads what tells the nodes apart; not to print it."""
    body = scope(call)
    text = call.function.text if call.function is not None else call.module.source.text
    if not says(text, NODE_VARIABLES):
        return False
    shown = [n for n in ast.walk(body) if isinstance(n, ast.Call) and _shows(n)]
    return any(
        text.count(name) > sum(call.module.text(one).count(name) for one in shown)
        for name in NODE_VARIABLES
    )


def _shows(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "print"
