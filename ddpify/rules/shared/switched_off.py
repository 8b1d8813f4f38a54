"""Where the reduction of gradients is turned off, and nothing turns it on again."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.accumulation import SYNC, averages_gradients, of_another, steps_of
from ddpify.rules.shared.once import holds_once
from ddpify.rules.shared.wrapped import wraps


def switched_off(run: Run) -> Iterator[tuple[Store, RankCall]]:
    """Where a wrapper's switch is turned off for good, and a step of an optimizer."""
    steps = list(steps_of(run))
    for wrap in wraps(run):
        told = [s for s in run.stores if s.key == SYNC and wrap.wrapper in s.base.things]
        step = next((s for s in steps if not of_another(s, wrap)), None)
        if not told or step is None or any(s.value.constant is not False for s in told):
            continue
        first = next((s for s in told if s.ranks == ALL and holds_once(s.guards, s.loops)), None)
        if first is not None and not any(
            averages_gradients(c) for c in run.calls if c.order > first.order
        ):
            yield first, step
