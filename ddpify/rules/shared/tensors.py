"""Of which type a tensor is on a rank, and whether it is in the memory of the CPU, if sure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ddpify.ranks.casts import casts
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.operations import ARITHMETIC
from ddpify.ranks.origins import Symbol
from ddpify.rules.shared import arrays
from ddpify.rules.shared.parameter_types import is_single
from ddpify.rules.shared.python_numbers import number_type

_FLOATS: Final = frozenset("zeros ones empty rand randn linspace eye".split())
_ALWAYS: Final = {**dict.fromkeys(_FLOATS, "float32"), "randint": "int64", "randperm": "int64"}
_BY_VALUE: Final = {"tensor": 0, "full": 1, "arange": 0, "as_tensor": 0}
_LIKE: Final = frozenset("zeros_like ones_like empty_like rand_like randn_like".split())
_KEEPING: Final = frozenset(
    "clone detach contiguous reshape squeeze flatten ravel numpy cpu".split()
)
_JOINING: Final = frozenset(
    """torch.cat torch.stack torch.concat torch.nn.utils.parameters_to_vector numpy.concatenate
    numpy.stack numpy.hstack numpy.ascontiguousarray""".split()
)
_MAKERS: Final = frozenset(f"torch.{name}" for name in (*_ALWAYS, *_BY_VALUE, "from_numpy"))
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
_PYTHON: Final[dict[type | None, str]] = {float: "float32", int: "int64", bool: "bool"}


def dtype(value: RankValue, rank: int) -> str | None:
    """The type of a tensor's, or an array's, numbers on a rank."""
    things = value.things_on(rank)
    if is_single(value, rank):
        return "float32"
    if not things:
        return _of_arithmetic(value, rank)
    return _of_thing(value, things[0], rank) if len(things) == 1 else None


def _of_arithmetic(value: RankValue, rank: int) -> str | None:
    """The type of ``rows ** 2`` and ``counts / counts.sum()``: numbers of Python leave a float what
    it is, and NumPy divides integers to float64."""
    atom = value.atoms[rank]
    if not isinstance(atom, Symbol) or atom.parts[:1] == () or atom.parts[0] not in ARITHMETIC:
        return None
    keys = [leaf.key for leaf in _leaves(atom) if isinstance(leaf, Symbol)]
    made = {f"{t.name}@{id(t)}": t for t in value.deps if t.kind == "result" and _makes(t.name)}
    things = [made.get(key.removesuffix(f":{rank}")) for key in keys]
    kinds = {None if one is None else _of_thing(value, one, rank) for one in things}
    turned = any(one is not None and casts(value, one, rank) for one in things)
    if not kinds or None in kinds or (turned and len(things) > 1):
        return None
    numpy = all(one is not None and arrays.makes(one.name) for one in things)
    if numpy and atom.parts[0] == "Div" and kinds <= {"int64", "float64"}:
        return "float64"
    return kinds.pop() if len(kinds) == 1 and kinds <= _FLOATING else None


def _leaves(atom: Any) -> Iterator[Any]:
    if isinstance(atom, Symbol) and atom.parts[:1] != () and atom.parts[0] in ARITHMETIC:
        for part in atom.parts[1:]:
            yield from _leaves(part)
    else:
        yield atom


def _makes(name: str) -> bool:
    return name in _MAKERS or arrays.makes(name)


def _of_thing(value: RankValue, thing: RankThing, rank: int) -> str | None:
    for call in reversed(casts(value, thing, rank)):
        told = _cast(call, rank)
        if told != "":
            return told
    if thing.kind == "attribute":
        return arrays.of_sklearn(thing)
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
    told = _named(given, rank)
    if told is not None:
        return told
    moved = {"torch.device", "torch.cuda.current_device"} & given.names()
    return "" if moved else None


def _named(value: RankValue, rank: int) -> str | None:
    """``torch.long``."""
    names = {thing.name for thing in value.things_on(rank)}
    name = names.pop() if len(names) == 1 else ""
    last = name.removeprefix("torch.")
    last = _ALIASES.get(last, last)
    return last if name.startswith("torch.") and last in _TYPES else None


def _made(call: RankCall, rank: int) -> str | None:
    """The type that a call of torch, or of NumPy, gives what it makes."""
    if arrays.makes(call.name):
        return arrays.made(call, rank, dtype)
    given = call.kwargs.get("dtype")
    if given is not None:
        return _named(given, rank)
    if call.receiver is not None and call.method in _ALIASES:  # `torch.zeros(2).long()`
        return _ALIASES[call.method]
    if call.name in _JOINING and call.args:
        kinds = {dtype(one, rank) for one in call.args[0].items or call.args[:1]}
        return kinds.pop() if len(kinds) == 1 else None
    if call.method in _LIKE | _KEEPING:
        on = call.receiver
        of = on if on is not None and (on.things or is_single(on, rank)) else None
        of = call.args[0] if call.name == f"torch.{call.method}" and call.args else of
        return dtype(of, rank) if of is not None else None
    if call.name not in _MAKERS:
        return None
    if call.method in _ALWAYS:
        return _ALWAYS[call.method]
    if call.method == "from_numpy":
        return dtype(call.args[0], rank) if call.args else None
    place = _BY_VALUE.get(call.method, -1)
    if not 0 <= place < len(call.args):
        return None
    return _of_value(call.args[place], rank) or dtype(call.args[place], rank)


def _of_value(value: RankValue, rank: int) -> str | None:
    """The type that torch takes for constants of Python, and for numbers of NumPy among them."""
    numbers = [one for one in value.items or () if any(arrays.makes(t.name) for t in one.things)]
    if numbers:
        told = {dtype(one, rank) for one in numbers}
        whole = len(numbers) == len(value.items or ())
        return told.pop() if len(told) == 1 and whole else None
    found = {number_type(one, rank) for one in value.items or (value,)}
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
    if any(_moves(one) for other in (0, 1) for one in casts(value, thing, other)):
        return False
    device = call.kwargs.get("device")
    if device is not None:
        return bool(device.constant == "cpu")
    return call.method not in ("tensor", "as_tensor") or _is_of_numbers(call)


def _moves(call: RankCall) -> bool:
    return call.method in ("to", "cuda", "xpu", "type", "apply")


def _is_of_numbers(call: RankCall) -> bool:
    """``torch.tensor([hits, total])`` of numbers: of a tensor it would be on that one's device."""
    value = call.args[0] if call.args else None
    if value is None:
        return False
    if value.items is not None and not value.things:
        return True
    read = (thing.name.rpartition(".")[2] for thing in value.sources())
    return value.known or any(name in ("item", "tolist", "len", "float") for name in read)
