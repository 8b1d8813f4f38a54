"""Of which type a tensor is on a rank, and whether it is in the memory of the CPU, if sure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ddpify.ranks.casts import casts
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.operations import ARITHMETIC
from ddpify.ranks.origins import Symbol

_FLOATS: Final = frozenset("zeros ones empty rand randn linspace eye".split())
_BY_VALUE: Final = {"tensor": 0, "full": 1, "arange": 0, "as_tensor": 0}
_LIKE: Final = frozenset("zeros_like ones_like empty_like rand_like randn_like".split())
_KEEPING: Final = frozenset("clone detach contiguous reshape squeeze flatten sum".split())
_MAKERS: Final = frozenset(
    f"torch.{name}" for name in (*_FLOATS, *_BY_VALUE, "randint", "randperm", "from_numpy")
)
# Of NumPy: float64, where nothing else is said.
_ARRAYS: Final = frozenset(
    f"numpy.{name}" for name in "zeros ones empty linspace eye loadtxt genfromtxt".split()
) | frozenset(
    f"numpy.random.{source}{name}"
    for source in ("", "default_rng.", "RandomState.")
    for name in "rand randn random normal uniform standard_normal exponential gamma beta".split()
)
_TYPED: Final = frozenset({"numpy.zeros", "numpy.ones", "numpy.empty"})  # by the second argument
_ALIASES: Final = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
}
_TYPES: Final = frozenset(
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
)
_FLOATING: Final = {"float64", "float32", "float16", "bfloat16"}
_PYTHON: Final = {float: "float32", int: "int64", bool: "bool"}


def dtype(value: RankValue, rank: int) -> str | None:
    """The type of a tensor's, or an array's, numbers on a rank."""
    things = value.things_on(rank)
    if not things and _is_arithmetic(value.atoms[rank]):
        made = [t for t in value.deps if t.kind == "result" and t.name in _MAKERS | _ARRAYS]
        kinds = {_of_thing(value, one, rank) for one in made}
        return kinds.pop() if len(made) == 1 and kinds <= _FLOATING else None
    return _of_thing(value, things[0], rank) if len(things) == 1 else None


def _is_arithmetic(atom: Any) -> bool:
    """``rows ** 2``: of one array, and numbers of Python, which leave a float what it is."""
    if not isinstance(atom, Symbol) or atom.parts[:1] == () or atom.parts[0] not in ARITHMETIC:
        return False
    return sum(1 for leaf in _leaves(atom) if isinstance(leaf, Symbol)) == 1


def _leaves(atom: Any) -> Iterator[Any]:
    if isinstance(atom, Symbol) and atom.parts[:1] != () and atom.parts[0] in ARITHMETIC:
        for part in atom.parts[1:]:
            yield from _leaves(part)
    else:
        yield atom


def _of_thing(value: RankValue, thing: RankThing, rank: int) -> str | None:
    for call in reversed(casts(value, thing, rank)):
        told = _cast(call, rank)
        if told != "":
            return told
    return _made(thing.call, rank) if thing.call is not None and thing.kind == "result" else None


def _cast(call: RankCall, rank: int) -> str | None:
    """The type that a method turns to; "" if it leaves it, None if that is not known."""
    name = _ALIASES.get(call.method, call.method)
    if name in _TYPES:
        return name
    if call.method not in ("to", "type"):
        return ""
    given = call.arg(0, "dtype")
    if given is None or isinstance(given.constant, (str, int)):
        return ""
    return _named(given, rank)


def _named(value: RankValue, rank: int) -> str | None:
    """``torch.long``, ``np.float32``."""
    names = {thing.name for thing in value.things_on(rank)}
    name = names.pop() if len(names) == 1 else ""
    module, _, last = name.rpartition(".")
    last = _ALIASES.get(last, last)
    return last if module in ("torch", "numpy") and last in _TYPES else None


def _made(call: RankCall, rank: int) -> str | None:
    """The type that a call of torch, or of NumPy, gives what it makes."""
    given = call.arg(1 if call.name in _TYPED else -1, "dtype")
    if given is not None:
        return _named(given, rank)
    if call.name in _ARRAYS:
        return "float64"
    if call.method in _LIKE | _KEEPING:
        of = call.receiver if call.receiver is not None and call.receiver.things else None
        of = call.args[0] if call.name == f"torch.{call.method}" and call.args else of
        return dtype(of, rank) if of is not None else None
    if call.name not in _MAKERS:
        return None
    if call.method in _FLOATS:
        return "float32"
    if call.method in ("randint", "randperm"):
        return "int64"
    if call.method == "from_numpy":
        return dtype(call.args[0], rank) if call.args else None
    place = _BY_VALUE.get(call.method, -1)
    if not 0 <= place < len(call.args):
        return None
    return _of_value(call.args[place], rank) or dtype(call.args[place], rank)


def _of_value(value: RankValue, rank: int) -> str | None:
    """The type that torch takes for constants of Python."""
    found = {type(one.atoms[rank]) for one in value.items or (value,)}
    kinds = {_PYTHON.get(kind) for kind in found}
    return "float32" if kinds == {"float32", "int64"} else kinds.pop() if len(kinds) == 1 else None


def on_cpu(value: RankValue) -> bool:
    """Whether a tensor was made in the CPU's memory, and is still there."""
    return bool(value.things) and all(
        any(_is_cpu(value, thing, rank) for rank in (0, 1)) for thing in value.things
    )


def _is_cpu(value: RankValue, thing: RankThing, rank: int) -> bool:
    call = thing.call
    if call is None or thing.kind != "result" or thing.name not in _MAKERS or call.contexts:
        return False
    if any(casts(value, thing, other) for other in (0, 1)):
        return False
    device = call.kwargs.get("device")
    if device is not None:
        return bool(device.constant == "cpu")
    return call.method not in ("tensor", "as_tensor") or _is_of_numbers(call)


def _is_of_numbers(call: RankCall) -> bool:
    """``torch.tensor([hits, total])`` of numbers: of a tensor it would be on that one's device."""
    value = call.args[0] if call.args else None
    if value is None:
        return False
    if value.items is not None and not value.things:
        return True
    read = (thing.name.rpartition(".")[2] for thing in value.sources())
    return value.known or any(name in ("item", "tolist", "len", "float") for name in read)
