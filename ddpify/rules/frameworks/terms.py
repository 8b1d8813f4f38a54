"""Of which terms a loss is put together, and whether each is a mean or a sum over the batch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.rules.shared.fields import function_of, own
from ddpify.rules.shared.losses import made_by, reduction, sums_entries

MEAN: Final = "mean"
SUM: Final = "sum"
UNKNOWN: Final = ""
Term = tuple[str, RankCall | None]
Made = dict[str, RankCall | None]
COUNTS: Final = ("sum", "count_nonzero", "nonzero")


class _By(Enum):
    """What a term is divided by, or multiplied with."""

    NUMBER = "a number, or nothing"
    COUNT = "how many samples this process has"
    OTHER = "something that is not followed"


# What a sum is then, and a mean.
_DIVIDED: Final = {
    _By.NUMBER: {},
    _By.COUNT: {"sum": "mean", "mean": ""},
    _By.OTHER: {"sum": ""},
}
_LENGTH: Final = re.compile(r"^len\(|\.shape\[0\]$")
_OF_ONE: Final = ("sum", "mean")
_MEANS: Final = ("mean",)
_SAME: Final = "clone contiguous double float half nan_to_num squeeze to type".split()
_NUMBER: Final = ".world_size"
_SUMMING: Final = re.compile(r"\bsum\(|[\"']sum[\"']|\b(?:max|min|norm|std|var|logsumexp)\(")


def terms(run: Run, loss: RankValue, calls: set[RankCall]) -> Iterator[Term]:
    """The calls that give the terms of a loss; ``calls``: those of what is trained."""
    made = {f"{t.name}@{id(t)}": t.call for t in (*loss.things, *loss.sources())}
    leaves = [(made.get(leaf.key), by) for leaf, by in _leaves(loss.atoms[0], made)]
    if loss.things and not any(call for call, _ in leaves):  # either of several
        leaves = [(thing.call, _By.NUMBER) for thing in loss.things]
    for call, by in leaves:
        if call is not None:
            yield from _of_call(run, call, by, calls)
    if leaves and not any(call for call, _ in leaves):
        yield UNKNOWN, None


def _of_call(run: Run, call: RankCall, by: _By, calls: set[RankCall]) -> Iterator[Term]:
    if call.name == "builtins.sum" and call.args and call.args[0].items is not None:
        inner = call.args[0].items
    else:
        inner = tuple(one for one in (_same(call),) if one is not None)
    if inner and by is _By.NUMBER:
        for one in inner:
            yield from terms(run, one, calls)
        return
    kind = _kind(run, call, calls)
    yield _DIVIDED[by].get(kind, kind), call


def _same(call: RankCall) -> RankValue | None:
    """What a call gives again: as another type, or the sum of the one number that a loss is."""
    inner = call.receiver or call.arg(0, "input")
    made = made_by(inner) if inner is not None else None
    scalar = made is not None and reduction(made) in (MEAN, SUM)
    return inner if call.method in _SAME or (scalar and call.method in _OF_ONE) else None


def _leaves(atom: Any, made: Made, by: _By = _By.NUMBER) -> Iterator[tuple[Symbol, _By]]:
    """The terms of a sum, and what else than numbers they are divided by, or multiplied with."""
    if not isinstance(atom, Symbol):
        return
    name, *parts = atom.parts or ("",)
    if name in ("Add", "Sub"):
        for one in parts:
            yield from _leaves(one, made, by)
    elif name == "Mult":
        symbols = [one for one in parts if isinstance(one, Symbol)]
        if not any(one.key.endswith(_NUMBER) for one in symbols):  # which puts a sum right
            for one in symbols:
                yield from _leaves(one, made, _By.OTHER if len(symbols) > 1 else by)
    elif name == "Div":
        below = _divisor(parts[1], made)
        if below is not None:
            yield from _leaves(parts[0], made, by if below is _By.NUMBER else below)
    elif not parts:
        yield atom, by


def _divisor(atom: Any, made: Made) -> _By | None:
    """What a term is divided by; None of a count that each process makes: DDP979."""
    if not isinstance(atom, Symbol):
        return _By.NUMBER
    call = made.get(atom.key)
    if call is not None and call.method == "size":
        first = call.arg(0, "dim")
        return _By.COUNT if first is not None and first.constant == 0 else _By.OTHER
    if call is not None and call.method in COUNTS:
        return None
    return _By.COUNT if _LENGTH.search(atom.key) else _By.OTHER


def _kind(run: Run, call: RankCall, calls: set[RankCall]) -> str:
    said = reduction(call)
    if said in (MEAN, SUM):
        return said
    trained = {thing for one in calls if one.result is not None for thing in one.result.things}
    if all(trained.isdisjoint((*one.things, *one.sources())) for one in call.inputs):
        return MEAN  # the same on all ranks: of weights, of settings
    if sums_entries(call, calls):
        return SUM
    function = _function(run, call)
    if function is not None:
        return UNKNOWN if _SUMMING.search(function.text) else MEAN
    return MEAN if call.method in _MEANS else UNKNOWN


def _function(run: Run, call: RankCall) -> FunctionDefinition | None:
    """The function, or the forward, of the project that is called, but not read."""
    for thing in call.receiver.things if call.receiver is not None else ():
        found = thing.cls.method(call.method) if thing.cls is not None else None
        if found is not None:
            return found
    owner = call.function.owner if call.function is not None else None
    method = owner.method(own(call.node.func)) if owner is not None else None
    return method or function_of(run, call.module, call.node.func)
