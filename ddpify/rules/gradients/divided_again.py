"""Gradients that DDP has averaged, and that the program divides by the number of ranks itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.gradients.comm_hooks import hooked
from ddpify.rules.shared.averaged_by_hand import averagings, is_gradient
from ddpify.rules.shared.by_ranks import power
from ddpify.rules.shared.wrapped import Wrap, backwards, forwards, parameters_of, wraps
from ddpify.site import Site

_SCALES: Final = {"div_": 1, "divide_": 1, "true_divide_": 1, "mul_": -1, "multiply_": -1}


def divided_again(run: Run) -> Iterator[tuple[Site, Wrap]]:
    """Where gradients of a wrapped model are divided, and the wrapper.

    Not where the loss was multiplied by as much, a hook adds gradients up, or the program does.
    """
    trained = [wrap for wrap in wraps(run) if forwards(run, wrap)]
    losses = [call.receiver for call in backwards(run) if call.receiver is not None]
    if not trained or any(hooked(run)) or averagings(run) or any(power(one) > 0 for one in losses):
        return
    for site, gradient, everywhere in _divisions(run):
        owners = parameters_of(gradient)
        found = [wrap for wrap in trained if owners and all(map(wrap.covers, owners))]
        if found and everywhere:
            yield site, found[0]


def _divisions(run: Run) -> Iterator[tuple[Site, RankValue, bool]]:
    for call in run.methods(*_SCALES):
        scaled = call.receiver
        if scaled is None or len(call.args) != 1 or not is_gradient(scaled):
            continue
        if power(call.args[0]) == _SCALES[call.method]:
            yield call.site, scaled, call.everywhere
    for store in run.stores:
        put = store.key == "grad" or (store.key == "data" and is_gradient(store.base))
        if put and not store.value.things and power(store.value) == -1:
            yield store.site, store.base, store.ranks == ALL
