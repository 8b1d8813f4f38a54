"""Errors of one rank after which a loop goes on with its next round."""

from __future__ import annotations

from ddpify.ranks.attempts import Attempt
from ddpify.ranks.model import RankCall


def is_passed_over(call: RankCall) -> bool:
    """Whether a loop goes on after an error of one rank alone at, or before, a call."""
    return any(is_repeated(call, one) and any(one.passes_over()) for one in call.swallows)


def is_repeated(call: RankCall, tried: Attempt) -> bool:
    """Whether a loop around the ``try`` goes on with the next round."""
    depth = next((n for n, one in enumerate(call.way) if one.site.within(tried.body)), None)
    return depth is not None and any(
        tried.site.within(loop.site) or any(loop in one.loops for one in call.way[:depth])
        for loop in call.way[depth].loops
    )
