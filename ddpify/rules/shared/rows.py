"""How many rows of a tensor a rank has that took its part of them."""

from __future__ import annotations

import re
from typing import Any, Final

from ddpify.ranks import sizes
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.operations import ARITHMETIC
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.values import Many, OwnRows, text
from ddpify.rules.shared.entries import entries

_SEQUENTIAL: Final = "torch.nn.Sequential"
_JOINING: Final = frozenset(
    "torch.stack torch.cat torch.concat torch.vstack torch.tensor numpy.array".split()
)
# They leave the rows as many as they are: functions of torch, and methods.
_KEEPING: Final = frozenset(
    """to cpu cuda float double half long int bool contiguous detach clone softmax log_softmax
    normalize sigmoid tanh relu gelu silu exp log sqrt square pow abs neg clamp dropout""".split()
)
# And these, along another dimension than the first: ``logits.argmax(dim=1)``.
_ALONG: Final = frozenset("argmax argmin sum mean amax amin norm squeeze flatten".split())
_NUMBERS: Final = frozenset({"torch.arange", "numpy.arange", "builtins.range"})
_WHOLE: Final = re.compile(r"len\((?!.*\[:\])|[^\[]*\.shape\[0\]$")
_DEEPEST: Final = 8
_Own = tuple[OwnRows | None, OwnRows | None]


def _of_atom(atom: Any) -> OwnRows | None:
    if isinstance(atom, OwnRows) or not isinstance(atom, Symbol) or len(atom.parts) != 3:
        return atom if isinstance(atom, OwnRows) else None
    name, one, other = atom.parts
    if name == ITEM:
        return _of_atom(other)  # `y[indices]`
    if name == "MatMult":
        return _of_atom(one)
    return _of_atom(one) or _of_atom(other) if name in ARITHMETIC else None


def _numbered(value: RankValue, atom: Any) -> OwnRows | None:
    """``rows[torch.arange(rank, len(rows), world)]``, or of a list of these numbers."""
    index = atom.parts[2] if isinstance(atom, Symbol) and atom.parts[:1] == (ITEM,) else None
    key = index.key.removesuffix(":0").removesuffix(":1") if isinstance(index, Symbol) else ""
    made = next((t for t in value.made_from if t.kind == "result" and key == t.key), None)
    call = made.call if made is not None else None
    if call is not None and call.name == "builtins.list" and call.args:
        listed = call.args[0].made_by("builtins.range")
        call = listed.call if listed is not None else None
    if call is None or call.name not in _NUMBERS or len(call.args) != 3:
        return None
    start, end, step = call.args
    if start.atoms != (0, 1) or not sizes.is_world_size(step.constant):
        return None
    rows = end.constant if isinstance(end.constant, int) else None
    known = rows is not None or _WHOLE.match(text(end.atoms[0]))  # not rounded to a multiple
    return OwnRows(key, rows=rows, stride=True) if known else None


def _of(value: RankValue, depth: int = _DEEPEST) -> _Own:
    """The rows that a value has one entry for each of, on both ranks."""
    one, other = (_of_atom(atom) or _numbered(value, atom) for atom in value.atoms)
    made = value.things[0].call if len(value.things) == 1 else None
    if (one is not None and other is not None) or made is None or not depth:
        return one, other
    given = made.args[0] if made.args else None
    if made.name in _JOINING and given is not None:  # `torch.stack([f(row) for row in mine])`
        one, other = (atom.over if isinstance(atom, Many) else None for atom in given.atoms)
        return _of_atom(one), _of_atom(other)
    of = _kept(made)
    return _of(of, depth - 1) if of is not None else (None, None)


def _kept(call: RankCall) -> RankValue | None:
    """What a call gives as many rows as."""
    on = call.receiver
    if call.method == "__call__":
        layers = {t.name for t in on.things} if on is not None else set()
        return call.args[0] if len(layers) == 1 and call.args and _is_layer(on) else None
    of_torch = call.name.startswith("torch.") and (on is None or not on.things)
    place = 1 if of_torch and call.args else 0
    of = call.args[0] if place else on
    if call.method in _ALONG:
        along = call.arg(place, "start_dim" if call.method == "flatten" else "dim")
        number = along.constant if along is not None else None
        return of if isinstance(number, int) and number > 0 else None
    return of if call.method in _KEEPING else None


def _is_layer(value: RankValue | None) -> bool:
    """Whether it is a layer of torch, or a Sequential of such: no loss, and none of the project."""
    made = value.things[0].call if value is not None and len(value.things) == 1 else None
    name = value.things[0].name if value is not None and value.things else ""
    if made is None or not name.startswith("torch.nn.") or name.endswith(("Loss", "Flatten")):
        return False
    return not made.star and all(map(_is_layer, made.args)) if name == _SEQUENTIAL else True


def are_uneven(value: RankValue) -> bool | None:
    """Whether the ranks have unequal numbers of rows; None if that hangs on a number that is not
    known."""
    one, other = _of(value)
    if one is None or other is None:
        return False
    counted = [_counted(own, rank) for rank, own in enumerate((one, other))]
    if None not in counted:
        return counted[0] != counted[1]
    if not (one.stride or _takes_the_rest(one, other)):
        return False
    return None if one.rows is None else one.rows % 2 == 1


def _counted(own: OwnRows, rank: int) -> int | None:
    return entries(RankValue((own, own)), rank)


def _takes_the_rest(one: OwnRows, other: OwnRows) -> bool:
    """``rows[lo:]`` on the last rank, ``rows[lo:hi]`` on the others."""
    if len(one.bounds) < 2 or len(other.bounds) < 2:
        return False
    ends = (one.bounds[1].atoms[0], other.bounds[1].atoms[1])
    open_, closed = (end is None or isinstance(end, Symbol) for end in ends)
    return open_ is not closed
