"""Of which type a number of Python is, as torch.tensor() asks."""

from __future__ import annotations

from typing import Any, Final

from ddpify.ranks.model import RankValue
from ddpify.ranks.operations import ARITHMETIC
from ddpify.ranks.origins import Symbol
from ddpify.ranks.values import Turn

_COUNTED: Final = ("element@", "index@")  # of a range(), or the number that enumerate() gives
_GIVING: Final = {
    "builtins.float": float,
    "builtins.len": int,
    "builtins.int": int,
    **dict.fromkeys(("time.time", "time.perf_counter", "time.monotonic"), float),
}


def number_type(value: RankValue, rank: int) -> type | None:
    """float, int or bool, if it is sure to be a number of Python, and none of NumPy or torch."""
    made = {f"{thing.name}@{id(thing)}": thing.name for thing in value.sources()}
    return _of_atom(value.atoms[rank], {key: _GIVING.get(name) for key, name in made.items()})


def _of_atom(atom: Any, made: dict[str, type | None]) -> type | None:
    if not isinstance(atom, Symbol):
        return type(atom) if isinstance(atom, (float, int)) else None
    if isinstance(atom, Turn):
        return int if atom.key.startswith(_COUNTED) else None
    if atom.parts[:1] and atom.parts[0] in ARITHMETIC:
        return _of_operation(atom.parts[0], [_of_atom(one, made) for one in atom.parts[1:]])
    return made.get(atom.key)


def _of_operation(name: str, kinds: list[type | None]) -> type | None:
    if None in kinds:
        return None
    if name == "Div" or float in kinds:
        return float
    return None if name == "Pow" else int  # `10 ** -2` is no integer
