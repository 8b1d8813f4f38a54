"""How many elements a tensor or an array has: a number times sizes that are not known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ddpify.ranks import sizes
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.values import text

_SIZED: Final = frozenset(
    f"{module}.{name}"
    for module in ("torch", "numpy")
    for name in "zeros ones empty rand randn".split()
)
_BY_FIRST: Final = frozenset(
    f"{module}.{name}" for module in ("torch", "numpy") for name in ("full", "arange")
)
_LIKE: Final = frozenset(
    f"{module}.{name}"
    for module in ("torch", "numpy")
    for name in "zeros_like ones_like empty_like rand_like randn_like from_numpy".split()
)
# They leave the number of elements as it is, of what they are called on.
_KEEPING: Final = frozenset(
    """clone detach contiguous reshape flatten ravel copy astype float double half bfloat16
    long int bool to cuda cpu requires_grad_ abs neg exp log sqrt square tanh sigmoid relu clamp
    unsqueeze squeeze permute transpose""".split()
)


@dataclass(frozen=True)
class Extent:
    """``number`` times the product of ``names``."""

    number: int
    names: tuple[str, ...] = ()

    def __mul__(self, other: Extent) -> Extent:
        number = sizes.apply(operator.mul, self.number, other.number)
        return Extent(number, tuple(sorted((*self.names, *other.names))))


def extent(value: RankValue, rank: int) -> Extent | None:
    """The number of elements on a rank, if each of its factors is a number or has a name."""
    things, atom = value.things_on(rank), value.atoms[rank]
    if len(things) != 1 or text(atom).removesuffix(f":{rank}") != _name(things[0]):
        return None  # `rows[:4]` is made by what made `rows`
    return _of_thing(things[0], rank)


def _of_thing(thing: RankThing, rank: int) -> Extent | None:
    call = thing.call
    made = _made(call, rank) if call is not None and thing.kind == "result" else None
    return made or Extent(1, (_name(thing),))


def _name(thing: RankThing) -> str:
    return f"{thing.name}@{id(thing)}"


def _made(call: RankCall, rank: int) -> Extent | None:
    """The extent of what a call makes."""
    if call.name in _SIZED:
        return _shape(call.args, rank) if call.args and not call.star else None
    if call.name in _BY_FIRST:
        whole = call.method == "full" or len(call.args) == 1  # `arange(start, end)` is shorter
        return _shape(call.args[:1], rank) if call.args and whole and not call.star else None
    of = call.receiver if call.method in _KEEPING else None
    if call.name in _LIKE and call.args:
        of = call.args[0]
    return extent(of, rank) if of is not None else None


def _shape(given: Iterable[RankValue], rank: int) -> Extent | None:
    """The product of some sizes, of which one may be a tuple or the shape of something."""
    product = Extent(1)
    for one in given:
        for size in one.items if one.items is not None else (one,):
            factor = _size(size, rank)
            if factor is None:
                return None
            product = product * factor
    return product


def _size(value: RankValue, rank: int) -> Extent | None:
    """One size, or a whole shape."""
    thing, atom = value.things[0] if len(value.things) == 1 else None, value.atoms[rank]
    of = thing.receiver if thing is not None and thing.name.endswith(".shape") else None
    if of is not None and text(atom) == f"{_name(of)}.shape":  # not a part of it
        return _of_thing(of, rank)
    return Extent(atom) if isinstance(atom, int) and atom > 0 else None


def never(times: int, one: Extent | None, other: Extent | None) -> bool:
    """Whether ``one``, so many times, is another number than ``other`` with any number of
    processes; ``times``: 0 for the number of processes."""
    return _always(times, one, other, operator.ne)


def exceeds(one: Extent | None, other: Extent | None, times: int = 1) -> bool:
    """Whether ``one``, so many times, is more than ``other`` with any number of processes."""
    return _always(times, one, other, operator.gt)


def _always(
    times: int, one: Extent | None, other: Extent | None, compare: Callable[[int, int], bool]
) -> bool:
    if one is None or other is None or one.names != other.names:
        return False
    factor = times or sizes.world_size()

    def holds(a: int, b: int, c: int) -> bool:
        return compare(a * b, c)

    return all(sizes.in_worlds(holds, factor, one.number, other.number))
