"""How many elements a tensor or an array has: a number times sizes that are not known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ddpify.ranks import sizes
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.values import text
from ddpify.rules.shared.lengths import length

_SIZED: Final = frozenset("zeros ones empty rand randn standard_normal random".split())
_NEW: Final = frozenset("new_empty new_zeros new_ones".split())
_LIKE: Final = frozenset(
    "zeros_like ones_like empty_like rand_like randn_like full_like from_numpy as_tensor".split()
)
# They leave the number of elements as it is, of what they are called on.
_KEEPING: Final = frozenset(
    """clone detach contiguous view reshape flatten ravel copy astype float double half bfloat16
    long int bool to cuda cpu requires_grad_ abs neg exp log sqrt square tanh sigmoid relu clamp
    unsqueeze squeeze permute transpose""".split()
)
_MODULES: Final = ("torch.", "numpy.")


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
    if value.items is not None or value.keys is not None:
        return None
    things = value.things_on(rank)
    atom = value.atoms[rank]
    if len(things) != 1 or not isinstance(atom, Symbol) or atom.parts:
        return None
    if things[0].kind == "attribute":
        return Extent(1, (atom.key,))
    if atom.key != _name(things[0]):
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
    if call.star:
        return None
    if call.name in {f"{module}{call.method}" for module in _MODULES}:
        if call.method in _LIKE:
            return extent(call.args[0], rank) if call.args else None
        return _sized(call, rank) if call.method in _SIZED else _by_value(call, rank)
    if call.method in _NEW:
        return _sized(call, rank)
    if call.method in _SIZED and call.name.startswith("numpy.random."):
        given = call.kwargs.get("size")
        return _shape([given], rank) if given is not None else None
    kept = call.receiver if call.method in _KEEPING else None
    return extent(kept, rank) if kept is not None and kept.things else None


def _sized(call: RankCall, rank: int) -> Extent | None:
    numpy = call.name.startswith("numpy.") and call.method not in ("rand", "randn")
    given = [call.arg(0, "shape")] if numpy else [*call.args]
    if not given and "size" in call.kwargs:
        given = [call.kwargs["size"]]
    return _shape([one for one in given if one is not None], rank)


def _by_value(call: RankCall, rank: int) -> Extent | None:
    """``torch.arange(n)``, ``torch.full((2, 3), 0.0)``, ``torch.tensor([1, 2])``."""
    if call.method == "full" and call.args:
        return _shape(call.args[:1], rank)
    if call.method == "arange" and len(call.args) == 1 and isinstance(call.args[0].atoms[0], int):
        return _shape(call.args, rank)
    if call.method in ("tensor", "array") and call.args:
        held = call.args[0]
        plain = not any(one.items or one.things for one in held.items or ())
        number = length(held, rank) if plain else None
        return Extent(number) if number else None
    return None


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
    thing = value.things[0] if len(value.things) == 1 else None
    if thing is not None and thing.name.endswith((".shape", ".numel", ".size")):
        return _asked(thing, text(value.atoms[rank]), rank)
    return None if value.things else _factor(value.atoms[rank])


def _asked(thing: RankThing, key: str, rank: int) -> Extent | None:
    """``x.shape``, ``x.numel()``, ``x.size()``, ``x.size(0)``."""
    call = thing.call
    if call is None or call.receiver is None:  # a property, of `x` itself or of a part of it
        of = thing.receiver
        return _of_thing(of, rank) if of is not None and key == f"{_name(of)}.shape" else None
    if not call.args:
        return extent(call.receiver, rank)
    dim = call.args[0].constant
    name = text(call.receiver.atoms[rank])
    return Extent(1, (f"{name}[{dim}]",)) if isinstance(dim, int) else None


def _factor(atom: Any) -> Extent | None:
    if isinstance(atom, int) and not isinstance(atom, bool):
        return Extent(atom) if atom > 0 else None
    if not isinstance(atom, Symbol) or atom.parts[:1] == (ITEM,):
        return None
    if atom.parts[:1] == ("Mult",):
        one, other = map(_factor, atom.parts[1:3])
        return one * other if one is not None and other is not None else None
    return Extent(1, (atom.key,)) if not atom.parts else None


def never(times: int, one: Extent | None, other: Extent | None) -> bool:
    """Whether ``one``, so many times, is another number than ``other`` with any number of
    processes; ``times``: 0 for the number of processes."""
    return _always(times, one, other, operator.ne)


def exceeds(one: Extent | None, other: Extent | None) -> bool:
    """Whether ``one`` is more than ``other`` with any number of processes."""
    return _always(1, one, other, operator.gt)


def _always(
    times: int, one: Extent | None, other: Extent | None, compare: Callable[[int, int], bool]
) -> bool:
    if one is None or other is None or one.names != other.names:
        return False
    factor = times or sizes.world_size()

    def holds(a: int, b: int, c: int) -> bool:
        return compare(a * b, c)

    return all(sizes.in_worlds(holds, factor, one.number, other.number))
