"""Gradients that a program averages itself, by collectives between its backward and its step."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.shared.wrapped import modules_of, parameters_of

_REDUCES: Final = (f"{words.DIST}all_reduce", f"{words.DIST}all_reduce_coalesced")
# What makes one tensor of many, or another view of one.
_SHAPED: Final = frozenset(
    "flatten view reshape cat stack clone contiguous _flatten_dense_tensors ravel to float"
    " parameters_to_vector".split()
)
_COPIES: Final = frozenset("cat stack clone _flatten_dense_tensors parameters_to_vector".split())
_DEEP: Final = 4
_SCALES: Final = frozenset("div mul divide multiply true_divide lerp".split())

Covers = Callable[[RankThing], bool]


@dataclass(frozen=True, eq=False)
class Averaging:
    """A collective of all ranks over gradients, and the models that they are of."""

    call: RankCall
    models: frozenset[RankThing]


def averagings(run: Run) -> list[Averaging]:
    """The collectives of a run over gradients, in order."""
    return run.once(_all_averagings)


def _all_averagings(run: Run) -> list[Averaging]:
    return list(_averagings(run))


def _averagings(run: Run) -> Iterator[Averaging]:
    for call in run.named(*_REDUCES):
        shared = collective(call)
        given = shared.given(shared.filled) if shared is not None else None
        if shared is None or shared.group is not None or given is None or not call.everywhere:
            continue
        models = frozenset(t for t in modules_of(given) if t.kind in ("instance", "result"))
        if models and (is_gradient(given) or any(map(is_gradient, _reshaped(run, given)))):
            yield Averaging(call, models)


def gradients_set(run: Run, covers: Covers) -> Iterator[RankValue]:
    """What a program puts in place of gradients of such models."""
    for store in run.stores:
        put = store.key == "grad" or (store.key == "data" and is_gradient(store.base))
        if put and not store.value.known and _is_of(store.base, covers):
            yield store.value
    for call in run.methods("copy_"):
        old = call.receiver
        if old is not None and call.args and is_gradient(old) and _is_of(old, covers):
            yield call.args[0]


def gradients_scaled(run: Run, covers: Covers) -> bool:
    """Whether a program may scale gradients of such models in place."""
    calls = (c for c in run.calls if c.method.strip("_").removeprefix("foreach_") in _SCALES)
    given = (value for call in calls for value in call.inputs)
    return any(is_gradient(value) and _is_of(value, covers) for value in given)


def rescaled(run: Run, covers: Covers) -> bool:
    """Whether a program may set or scale the gradients of such models itself."""
    return any(gradients_set(run, covers)) or gradients_scaled(run, covers)


def _is_of(value: RankValue, covers: Covers) -> bool:
    """Whether gradients may be those of such models."""
    owners = parameters_of(value)
    return not owners or any(map(covers, owners))


def _reshaped(run: Run, value: RankValue) -> Iterator[RankValue]:
    """What a function of the project was given that only puts tensors together, or views them."""
    for call in run.calls:
        made = call.result if call.target is not None and len(call.args) == 1 else None
        if made is None or made.atoms != value.atoms or call.target is None:
            continue
        nodes = [one.func for one in ast.walk(call.target.node) if isinstance(one, ast.Call)]
        if nodes and all(isinstance(f, ast.Attribute) and f.attr in _SHAPED for f in nodes):
            yield call.args[0]


def is_in_place(call: RankCall) -> bool:
    """Whether a collective is given gradients themselves, no copy that holds several of them."""
    shared = collective(call)
    given = shared.given(shared.filled) if shared is not None else None
    made = given.things[0].call if given is not None and len(given.things) == 1 else None
    return made is None or made.method not in _COPIES


def is_gradient(value: RankValue, depth: int = _DEEP) -> bool:
    """Whether a tensor is ``p.grad``, or made of such ones alone."""
    if any(text(atom).removesuffix(".data").endswith(".grad") for atom in value.atoms):
        return True
    if value.items is not None:
        return bool(value.items) and all(is_gradient(item, depth - 1) for item in value.items)
    call = value.things[0].call if len(value.things) == 1 else None
    if depth == 0 or call is None or call.method not in _SHAPED:
        return False
    given = call.receiver if call.receiver is not None else (*call.args, None)[0]
    return given is not None and is_gradient(given, depth - 1)
