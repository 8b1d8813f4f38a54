"""What clips gradients, by the last part of its name."""

from __future__ import annotations

from math import inf
from typing import Final

from ddpify.ranks.model import RankCall

_INFINITE: Final = ("inf", "infty")  # of math, numpy, torch

CLIPS = frozenset(
    {"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_"}
)


def measures(clip: RankCall) -> bool:
    """Whether nothing is clipped, but the norm asked for."""
    limit = clip.arg(1, "max_norm")
    made = limit.made_by("builtins.float") if limit is not None else None
    given = made.call.args if made is not None and made.call is not None else ()
    spelled = [one.constant for one in given] in (["inf"], ["Infinity"])
    named = any(name.rpartition(".")[2] in _INFINITE for name in limit.names()) if limit else False
    return limit is not None and (spelled or limit.constant == inf or named)
