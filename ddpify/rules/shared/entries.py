"""How many entries a rank has of what it took its part of, computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ddpify.ranks import sizes, words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.operations import ARITHMETIC, OwnNumber
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.picked import rows_of
from ddpify.ranks.values import Many, OwnRows

_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{f"builtins.{one.__name__}": one for one in (int, min, max, round)},
    **{f"{module}.{one.__name__}": one for module in ("math", "numpy") for one in (math.ceil,)},
}
_DATA: Final = "torch.utils.data."
# As many as are in the first argument.
_KEEPING: Final = frozenset(
    (
        f"{_DATA}TensorDataset",
        *(f"builtins.{n}" for n in "list tuple sorted enumerate iter".split()),
    )
)
_UNARY: Final[dict[str, Callable[[Any], Any]]] = {"USub": lambda number: -number}


def entries(value: RankValue, rank: int) -> int | None:
    """How many entries a list, a tensor or a data set has on a rank; None if that is not sure."""
    atom = value.atoms[rank]
    if isinstance(atom, OwnRows):
        return _cut(atom, rank)
    if isinstance(atom, Many) and atom.over is not None:  # `[f"{i}.pt" for i in range(16)]`
        as_made = len(value.items or ()) == 1  # one stands for all; what is appended is another
        return atom.number if as_made and type(atom.number) is int else None
    things = value.things_on(rank)
    key = atom.key.removesuffix(f":{rank}") if isinstance(atom, Symbol) else ""
    thing = things[0] if len(things) == 1 and key == _key(things[0]) else None
    return _of_thing(thing, rank) if thing is not None else None


def _key(thing: RankThing) -> str:
    return f"{thing.name}@{id(thing)}"


def _cut(own: OwnRows, rank: int) -> int | None:
    """``rows[rank * share : (rank + 1) * share]``."""
    whole = entries(own.base, rank) if own.base is not None else None
    if whole is None or not own.bounds:
        return None
    given = [number(one, rank) for one in own.bounds]
    unknown = [
        one.atoms[rank] is not None for one, n in zip(own.bounds, given, strict=True) if n is None
    ]
    return len(range(whole)[slice(*given)]) if not any(unknown) else None


def _of_thing(thing: RankThing, rank: int) -> int | None:
    call = thing.call
    if call is None or thing.kind != "result" or thing.deals or call.star or not call.args:
        return None
    if thing.name == words.LOADER:
        return _batches(call, rank)
    if thing.name == "builtins.range":
        found: int | None = _applied(_length, [number(one, rank) for one in call.args])
        return found
    if thing.name == f"{_DATA}Subset":
        return entries(call.args[1], rank) if len(call.args) > 1 else None
    if thing.name in _KEEPING or thing.name.startswith("tqdm"):
        return entries(call.args[0], rank)
    return rows_of(RankValue((None, None), (thing,)))


def _length(*bounds: int) -> int:
    return len(range(*bounds))


def _batches(loader: RankCall, rank: int) -> int | None:
    """How many batches a loader has that takes all samples."""
    places = ((1, "batch_size"), (8, "drop_last"))
    size, drops = (loader.arg(*place) for place in places)
    known = [size is None or isinstance(size.constant, int), drops is None or drops.known]
    sampled = any(
        loader.arg(*place) is not None for place in ((3, "sampler"), (4, "batch_sampler"))
    )
    if sampled or not all(known):
        return None
    samples, by = entries(loader.args[0], rank), size.constant if size is not None else 1
    down = drops is not None and drops.constant
    return None if samples is None else samples // by if down else -(-samples // by)


def number(value: RankValue, rank: int) -> int | None:
    """A number that is computed from how many entries others have; None if it is not known."""
    found = _computed(value, rank)
    return found if isinstance(found, int) else None


def _computed(value: RankValue, rank: int) -> Any:
    return _number(value.atoms[rank], rank, {_key(thing): thing for thing in value.sources()})


def _number(atom: Any, rank: int, made: dict[str, RankThing]) -> Any:
    if not isinstance(atom, (Symbol, OwnNumber)):
        return sizes.with_two(atom)
    name, *operands = atom.parts or ("",)
    if name == ITEM and operands[1] == 0 and isinstance(operands[0], Symbol):
        return _of_key(operands[0].key.removesuffix(".shape"), rank, made)
    function = ARITHMETIC.get(name) or _UNARY.get(name)
    if function is not None:
        return _applied(function, [_number(one, rank, made) for one in operands])
    key = atom.key.removesuffix(f":{rank}") if isinstance(atom, Symbol) else ""
    if key.startswith("len(") and key.endswith(")"):
        return _of_key(key[4:-1], rank, made)
    thing = made.get(key)
    return _called(thing.call, rank) if thing is not None and thing.call is not None else None


def _of_key(key: str, rank: int, made: dict[str, RankThing]) -> int | None:
    return _of_thing(made[key], rank) if key in made else None


def _called(call: RankCall, rank: int) -> Any:
    """``math.ceil(len(rows) / world_size)``, ``rows.size(0)``."""
    if call.method == "size" and call.receiver is not None:
        first = call.args and call.args[0].constant == 0
        return entries(call.receiver, rank) if first else None
    function = _FUNCTIONS.get(call.name) if not call.kwargs and not call.star else None
    return _applied(function, [_computed(one, rank) for one in call.args]) if function else None


def _applied(function: Callable[..., Any], numbers: list[Any]) -> Any:
    try:
        return function(*numbers) if numbers and None not in numbers else None
    except (ArithmeticError, TypeError, ValueError):
        return None
