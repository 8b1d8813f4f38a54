"""Of which type the numbers of a NumPy array are: float64, where nothing else is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue

_MODULE: Final = "numpy."
# Of float64, where no type is asked for.
_FLOATS: Final = frozenset(
    f"{_MODULE}{name}" for name in "zeros ones empty linspace eye loadtxt genfromtxt".split()
) | frozenset(
    f"{_MODULE}random.{source}{name}"
    for source in ("", "default_rng.", "RandomState.")
    for name in "rand randn random normal uniform standard_normal exponential gamma beta".split()
)
_BY_VALUE: Final = {f"{_MODULE}array": 0, f"{_MODULE}full": 1, f"{_MODULE}arange": 0}
_INTEGERS: Final = f"{_MODULE}random.default_rng.integers"  # int64, where no type is asked for
_PLACES: Final = {"zeros": 1, "ones": 1, "empty": 1, "array": 1, "full": 2}
# Of integers these are float64, of floats they have their type.
_MEANS: Final = frozenset("mean std var average median percentile quantile".split())
_JOINS: Final = frozenset("stack concatenate vstack hstack column_stack".split())
_KEEPING: Final = frozenset("copy reshape ravel flatten max min sum".split()) | _MEANS | _JOINS
_KINDS: Final = {float: "float64", int: "int64", bool: "bool"}
_CODES: Final = {"d": "float64", "f": "float32"}
_TYPES: Final = frozenset("float64 float32 float16 int64 int32 uint8".split())
# What scikit-learn gives as float64: measured, whatever a StandardScaler is fitted on.
_FITTED: Final = frozenset({"mean_", "var_", "scale_"})
_SCALER: Final = "sklearn.preprocessing.StandardScaler"
_TABLES: Final = frozenset(
    f"sklearn.datasets.load_{name}.data" for name in "iris wine diabetes breast_cancer".split()
)
Read = Callable[[RankValue, int], "str | None"]


def of_sklearn(kept: RankThing) -> str | None:
    """The type of what scikit-learn keeps under this name, if it has always the same."""
    base, _, last = kept.name.rpartition(".")
    call = kept.receiver.call if kept.receiver is not None else None
    plain = kept.name in _TABLES and call is not None and not _is_frame(call)
    fitted = last in _FITTED and base in (_SCALER, f"{_SCALER}.fit")
    return "float64" if fitted or plain else None


def _is_frame(call: RankCall) -> bool:
    """``as_frame=True``; of columns each has its type."""
    return call.args != () or not call.kwargs.keys() <= {"scaled"}


def makes(name: str) -> bool:
    """Whether a call of this name makes an array of which the type may be known."""
    base, _, method = name.rpartition(".")
    array = base.startswith(_MODULE) or base in _TABLES or f"{base}." == _MODULE
    turned = array and method in _KEEPING | {"astype"}
    return name in _FLOATS or name in _BY_VALUE or name == _INTEGERS or turned


def made(call: RankCall, rank: int, read: Read) -> str | None:
    """The type that a call of NumPy gives its array; ``read`` says that of another array."""
    place = 0 if call.method == "astype" else _PLACES.get(call.method, -1)
    given = call.arg(place, "dtype")
    if given is not None:
        return _named(given, rank)
    if call.name in _FLOATS:
        return "float64"
    if call.name == _INTEGERS:
        return "int64"
    if call.name in _BY_VALUE:
        return _of_values(call, rank)
    of = call.receiver if call.name.rpartition(".")[0] != "numpy" else call.arg(0, "a")
    joined = (of.items or () if of is not None else ()) if call.method in _JOINS else (of,)
    kinds = {read(one, rank) if one is not None else None for one in joined}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind == "int64":
        return "float64" if call.method in _MEANS else kind
    return kind if kind is not None and kind.startswith("float") else None  # short ones grow


def _of_values(call: RankCall, rank: int) -> str | None:
    """``np.array([3, 4])``, ``np.full(4, 0.0)``."""
    place = _BY_VALUE[call.name]
    given = call.args[place : place + 1]
    found = {type(one.atoms[rank]) for value in given for one in value.items or (value,)}
    kinds = {_KINDS.get(kind) for kind in found}
    return kinds.pop() if len(kinds) == 1 else None


def _named(value: RankValue, rank: int) -> str | None:
    """``np.float32``, ``"f"``."""
    atom = value.atoms[rank]
    names = {thing.name.removeprefix(_MODULE) for thing in value.things_on(rank)}
    name = atom if isinstance(atom, str) else names.pop() if len(names) == 1 else ""
    return name if name in _TYPES else _CODES.get(name)
