"""Gradients that DDP has averaged, and that the program divides by the number of ranks itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankValue
from ddpify.ranks.run import Run
from ddpify.rules.gradients.comm_hooks import hooked
from ddpify.rules.shared.averaged_by_hand import averagings, is_gradient
from ddpify.rules.shared.by_ranks import PRODUCTS, power
from ddpify.rules.shared.wrapped import Wrap, backwards, parameters_of, wraps
from ddpify.site import Site

_SCALES: Final = {f"{name}_": factor for name, factor in PRODUCTS.items()}


def divided_again(run: Run) -> Iterator[tuple[Site, Wrap]]:
    """Where gradients of a wrapped model are divided, and the wrapper.

    Not where the loss was multiplied by as much, a hook adds gradients up, or the program does.
    """
    made = list(wraps(run))
    losses = [call.receiver for call in backwards(run) if call.receiver is not None]
    if not made or any(hooked(run)) or averagings(run) or any(power(one) > 0 for one in losses):
        return
    for site, gradient in _divisions(run):
        owners = parameters_of(gradient)
        found = [wrap for wrap in made if owners and all(map(wrap.covers, owners))]
        if found:
            yield site, found[0]


def _divisions(run: Run) -> Iterator[tuple[Site, RankValue]]:
    for call in run.methods(*_SCALES):
        scaled = call.receiver
        if scaled is None or len(call.args) != 1 or not is_gradient(scaled):
            continue
        if power(call.args[0]) * _SCALES[call.method] == -1:
            yield call.site, scaled
    for store in run.stores:
        put = store.key == "grad" or (store.key == "data" and is_gradient(store.base))
        if put and power(store.value) == -1:
            yield store.site, store.base
