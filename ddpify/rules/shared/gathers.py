"""Gathers of tensors from all ranks, and what they fill in."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.words import DIST

# By these all ranks get what each has, rank by rank: into what they are given, or as their result.
FILLING: Final = frozenset(
    f"{DIST}{name}" for name in ("all_gather", "all_gather_into_tensor", "all_gather_single")
)
GIVING: Final = frozenset(
    {f"{DIST}nn.all_gather", f"{DIST}_functional_collectives.all_gather_tensor"}
    | {"accelerate.Accelerator.gather"}
)


def arguments(gather: RankCall) -> tuple[RankValue | None, RankValue | None]:
    """What one that fills is to fill in, and what it is given."""
    shared = collective(gather)
    if shared is None or gather.name not in FILLING:
        return None, None
    return shared.given(shared.parameters[0]), shared.given(shared.parameters[1])


def made_to_fill(into: RankValue) -> set[RankThing]:
    """The tensors that were made to be filled."""
    held = (into, *(into.items or ()))
    return {thing for value in held for thing in value.things if thing.kind == "result"}
