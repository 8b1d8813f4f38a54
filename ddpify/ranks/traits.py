"""Traits of things that the reading gives them, beside the attributes that the user's code does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from ddpify.ranks.origins import Origin


@dataclass(frozen=True)
class Traits:
    """What decorators make of a function; ``rank0``: why rank 0 alone runs it."""

    static: bool = False
    of_class: bool = False
    property: bool = False
    context: bool = False  # a generator that is a context manager
    cached: bool = False
    no_grad: bool = False
    rank0: Origin | None = None

    def also(self, trait: str) -> Traits:
        """With one more of them, by its name."""
        known: dict[str, Any] = {trait: True}
        return replace(self, **known)


PLAIN: Final = Traits()
NO_GRAD: Final = Traits(no_grad=True)
