"""Which models have nothing left to train: what was said last of ``requires_grad``."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run

_ALL = ("parameters", "named_parameters")


def is_frozen(run: Run, model: RankValue) -> bool:
    """Whether the last word on all parameters of a model is that none is trained."""
    frozen = False
    for said, of, value in sorted(_said(run), key=lambda one: one[0].order):
        if value is None or value.constant is not False:
            frozen = frozen and set(model.things).isdisjoint(of.sources())
        else:
            frozen = frozen or _is_whole(run, said, of, model)
    return frozen


def _said(run: Run) -> Iterator[tuple[RankCall | Store, RankValue, RankValue | None]]:
    """``x.requires_grad_(False)`` and ``x.requires_grad = False``: where, of what and what."""
    for call in run.calls:
        if call.method == "requires_grad_" and call.receiver is not None:
            yield call, call.receiver, call.arg(0, "requires_grad")
    yield from ((one, one.base, one.value) for one in run.stores if one.key == "requires_grad")


def _is_whole(run: Run, said: RankCall | Store, of: RankValue, model: RankValue) -> bool:
    """Whether it is said of the model, or of each of its parameters in a loop that skips none."""
    inside = set(model.things)
    if not inside.isdisjoint(of.things):
        return True
    made = (t.call for t in of.sources() if t.call is not None and t.call.method in _ALL)
    if not any(c.receiver is not None and inside & set(c.receiver.things) for c in made):
        return False
    loop = said.loops[-1:]
    chosen = any(guard.site.within(one.site) for guard in said.guards for one in loop)
    return not chosen and not any(loop and leave.loops[-1:] == loop for leave in run.exits)
