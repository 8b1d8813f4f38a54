"""How a loss depends on the number of ranks: divided by it, or multiplied, or neither."""

from __future__ import annotations

from math import isclose, log2
from typing import Any, Final

from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.sizes import Sized, world_size

_FOLLOWED: Final = frozenset("mean sum squeeze to float".split())
PRODUCTS: Final = {"div": -1, "divide": -1, "true_divide": -1, "mul": 1, "multiply": 1}
_SIZES: Final = world_size().worlds


def power(value: RankValue) -> int:
    """The power of the number of ranks by which a loss was multiplied: -1 if divided by it."""
    call = value.things[0].call if len(value.things) == 1 else None
    if call is None or value.things[0].kind != "result":
        return _power(value.atoms[0]) or 0
    if call.name.endswith(".GradScaler.scale") and call.args:
        return power(call.args[0])
    factor = PRODUCTS.get(call.method.rstrip("_"))
    operands = [*([call.receiver] if call.receiver is not None else []), *call.args]
    if factor is not None and len(operands) == 2:
        return power(operands[0]) + factor * power(operands[1])
    if call.receiver is not None and call.method in _FOLLOWED and not call.args:
        return power(call.receiver)
    return _power(value.atoms[0]) or 0


def _power(atom: Any) -> int | None:
    """That of a part of a loss; None where no gradient comes through it."""
    if isinstance(atom, Sized):
        return _of_constant(atom)
    if not isinstance(atom, Symbol):
        return 0
    if ".detach@" in atom.key and not atom.parts:
        return None
    if len(atom.parts) != 3:
        return 0
    name, one, other = atom.parts
    if name in ("Add", "Sub"):
        held = {found for part in (one, other) if (found := _power(part)) is not None}
        return held.pop() if len(held) == 1 else 0
    first, second = _power(one) or 0, _power(other) or 0
    return first - second if name == "Div" else first + second if name == "Mult" else 0


def _of_constant(atom: Sized) -> int:
    """1 of what is as many times larger as there are more ranks, -1 of ``1 / world_size``."""
    two, four, eight = (atom.worlds[_SIZES.index(number)] for number in (2, 4, 8))
    if isinstance(two, str) or min(two, four, eight) <= 0:
        return 0
    found = log2(four / two)
    return round(found) if isclose(found, log2(eight / four)) and found == round(found) else 0
