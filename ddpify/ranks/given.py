"""What a call is given."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ddpify.ranks.model import RankValue


@dataclass(frozen=True)
class Given:
    """What a call is made with; ``receiver``: what its method was taken from, if it was."""

    node: ast.Call
    receiver: RankValue | None = None
    args: tuple[RankValue, ...] = ()
    kwargs: dict[str, RankValue] = field(default_factory=dict)
    star: bool = False  # there may be more arguments
    alone: bool = False  # the call is a whole statement

    def on(self, receiver: RankValue | None) -> Given:
        """The same, with another receiver."""
        if receiver is self.receiver:
            return self
        return Given(self.node, receiver, self.args, self.kwargs, self.star, self.alone)
