"""Buffers of mpi4py that are said to be of another type than they are: ``[g, MPI.DOUBLE]``."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.model import RankCall, RankValue
from ddpify.rules.shared.complaints import Complaint
from ddpify.rules.shared.tensors import dtype

_MPI: Final = "mpi4py.MPI."
_TYPES: Final = {
    "DOUBLE": "float64",
    "FLOAT": "float32",
    "FLOAT64_T": "float64",
    "INT": "int32",
    "INT32_T": "int32",
    "LONG": "int64",
    "LONG_LONG": "int64",
    "INT64_T": "int64",
    "BOOL": "bool",
}
_BYTES: Final = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bool": 1}
_ADDING: Final = frozenset("Reduce Allreduce Reduce_scatter Scan Exscan".split())


def misnamed(call: RankCall) -> Complaint | None:
    """The buffer of a call that is read as another type than its array has."""
    if not call.name.startswith(_MPI) or call.method[:1].islower():
        return None
    for value in call.given:
        for rank in (0, 1):
            said, held = _said(value, rank), dtype(value.items[0], rank) if value.items else ""
            if said is None or held not in _BYTES or said == held:
                continue
            counted = len(value.items or ()) > 2 and _BYTES[said] != _BYTES[held]
            if counted or call.method in _ADDING:  # else as many bytes arrive as are sent
                return Complaint(
                    call.site,
                    f"the array is {held}, and this {call.method}() takes it for {said}: a crash or"
                    " wrong numbers",
                    "leave the type to mpi4py, which reads it off the array",
                )
    return None


def _said(value: RankValue, rank: int) -> str | None:
    """The type that stands beside an array."""
    for item in (value.items or ())[1:]:
        names = {thing.name for thing in item.things_on(rank)}
        if len(names) == 1 and (name := names.pop()).startswith(_MPI):
            return _TYPES.get(name.removeprefix(_MPI))
    return None
