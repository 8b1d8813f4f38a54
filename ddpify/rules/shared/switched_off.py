"""Where the reduction of gradients is turned off, and nothing turns it on again."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.accumulation import SYNC, averages_gradients, of_another, steps_of
from ddpify.rules.shared.once import holds_once
from ddpify.rules.shared.wrapped import Wrap, wraps


def switched_off(run: Run) -> Iterator[tuple[Store, RankCall]]:
    """Where a wrapper's switch is turned off for good, and a step of an optimizer after that."""
    steps = list(steps_of(run))
    for wrap in wraps(run):
        told = [s for s in run.stores if s.key == SYNC and wrap.wrapper in s.base.things]
        if any(store.value.constant is not False for store in told):
            continue
        first = next((s for s in told if s.ranks == ALL and holds_once(run, s)), None)
        step = next((s for s in steps if first is not None and _takes(s, wrap, first)), None)
        if first is not None and step is not None and not _is_averaged(run, first):
            yield first, step


def _takes(step: RankCall, wrap: Wrap, off: Store) -> bool:
    """Whether a step is made with the wrapper's gradients, after it was turned off."""
    later = step.order > off.order or any(loop in step.loops for loop in off.loops)
    return later and not of_another(step, wrap)


def _is_averaged(run: Run, off: Store) -> bool:
    return any(averages_gradients(call) for call in run.calls if call.order > off.order)
