"""Of which type the numbers of a NumPy array are: float64, where nothing else is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ddpify.ranks.model import RankCall, RankValue

_MODULE: Final = "numpy."
_FLOATS: Final = frozenset(
    f"{_MODULE}{name}" for name in "zeros ones empty linspace eye loadtxt genfromtxt".split()
)
_LIKE: Final = frozenset(f"{_MODULE}{name}_like" for name in "zeros ones empty full".split())
_BY_VALUE: Final = {
    **{f"{_MODULE}{name}": 0 for name in ("array", "asarray", "ascontiguousarray", "arange")},
    f"{_MODULE}full": 1,
}
_DRAWS: Final = frozenset(
    f"{_MODULE}random.{source}{name}"
    for source in ("", "default_rng.", "RandomState.")
    for name in "rand randn random normal uniform standard_normal exponential gamma beta".split()
)
_INTEGERS: Final = frozenset(
    f"{_MODULE}random.{name}" for name in ("randint", "default_rng.integers", "RandomState.randint")
)
_ASIS: Final = frozenset("copy reshape ravel flatten max min".split())
_SUMS, _MEANS = frozenset({"sum", "cumsum"}), frozenset({"mean", "std"})
_KEEPING: Final = _ASIS | _SUMS | _MEANS
_KINDS: Final = {float: "float64", int: "int64", bool: "bool"}
_NAMES: Final = {
    "double": "float64",
    "float64": "float64",
    "single": "float32",
    "float32": "float32",
    "half": "float16",
    "float16": "float16",
    "int64": "int64",
    "int32": "int32",
    "uint8": "uint8",
    "f8": "float64",
    "d": "float64",
    "f4": "float32",
    "f": "float32",
    "i8": "int64",
    "i4": "int32",
    "i": "int32",
}
_PLAIN: Final = {"float": "float64", "int": "int64", "bool": "bool"}
_PLACES: Final = {"zeros": 1, "ones": 1, "empty": 1, "array": 1, "asarray": 1, "full": 2}
Read = Callable[[RankValue, int], "str | None"]


def makes(name: str) -> bool:
    """Whether a call of this name makes an array of which the type may be known."""
    return (
        name in _FLOATS
        or name in _BY_VALUE
        or name in _LIKE
        or name in _DRAWS
        or name in _INTEGERS
        or _base(name) is not None
    )


def _base(name: str) -> str | None:
    """What is called a method of: ``numpy.zeros`` of ``numpy.zeros.astype``."""
    base, _, method = name.rpartition(".")
    kept = method in _KEEPING or method == "astype"
    return base if kept and base.startswith(_MODULE) else None


def made(call: RankCall, rank: int, read: Read) -> str | None:
    """The type that a call of NumPy gives its array; ``read`` says that of another array."""
    given = call.arg(_PLACES.get(call.method, -1), "dtype")
    if call.method == "astype":
        given = call.arg(0, "dtype")
    if given is not None:
        return _named(given, rank)
    if call.name in _FLOATS or call.name in _DRAWS:
        return "float64"
    if call.name in _INTEGERS:
        return "int64"
    of = call.receiver if _base(call.name) is not None else None
    if call.name in _LIKE and call.args:
        of = call.args[0]
    if of is not None:
        return _reduced(call.method, read(of, rank))
    return _of_values(call, rank, read)


def _reduced(method: str, kind: str | None) -> str | None:
    """The type of what a method gives: the mean of integers is a float64, their sum an int64."""
    if kind not in ("int64", "int32", "bool"):
        return None if kind == "uint8" and method not in _ASIS else kind
    return "float64" if method in _MEANS else "int64" if method in _SUMS else kind


def _of_values(call: RankCall, rank: int, read: Read) -> str | None:
    """``np.array([0.5, 1])``, ``np.arange(3)``, ``np.full(4, 0.0)``."""
    place = _BY_VALUE.get(call.name, 0)
    given = call.args[place : place + 1]
    if call.method == "arange":
        given = call.args
    elif given and given[0].things:
        return read(given[0], rank)
    found = {type(one.atoms[rank]) for value in given for one in value.items or (value,)}
    kinds = {_KINDS.get(kind) for kind in found}
    if kinds == {"float64", "int64"}:
        return "float64"
    return kinds.pop() if len(kinds) == 1 else None


def _named(value: RankValue, rank: int) -> str | None:
    """``np.float32``, ``"f4"``, ``float``."""
    atom = value.atoms[rank]
    if isinstance(atom, str):
        return _NAMES.get(atom) or _PLAIN.get(atom)
    names = {thing.name for thing in value.things if value.ranks_of(thing) & (1 << rank)}
    name = names.pop() if len(names) == 1 else ""
    if name.startswith("builtins."):
        return _PLAIN.get(name.removeprefix("builtins."))
    return _NAMES.get(name.removeprefix(_MODULE)) if name.startswith(_MODULE) else None
