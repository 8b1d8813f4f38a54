"""DDP910: a sharded model is told not to reduce gradients, and never to reduce them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED
from ddpify.rules.shared.once import holds_once
from ddpify.rules.shared.wrapped import backwards

_SWITCH = "set_requires_gradient_sync"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per program in which the switch is only ever turned off."""
    told = list(run.methods(_SWITCH))
    off = next((call for call in told if _takes_all(run, call)), None)
    if off is not None and any(backwards(run)) and all(map(_is_off, told)):
        yield Finding(
            "DDP910",
            off.site,
            "nothing turns this on again: gradients are never reduced, and the optimizer has none",
            Severity.ERROR,
            advice=f"model.{_SWITCH}(True) before the last micro-batch of each step",
            because=tuple((shard.site, "sharded here") for shard in _shards(off)),
        )


def _shards(call: RankCall) -> Iterator[RankCall]:
    things = call.receiver.things if call.receiver is not None else ()
    return (thing.sharded for thing in things if thing.sharded is not None)


def _takes_all(run: Run, call: RankCall) -> bool:
    """Whether it is surely called, on a sharded model."""
    return call.everywhere and holds_once(run, call) and any(_shards(call))


def _is_off(call: RankCall) -> bool:
    value = call.arg(0, _SWITCH[4:])
    return value is not None and value.constant is False and not call.star


_MADE = "    fully_shard(model)\n"
_BACK = "            loss.backward()\n"
_OFF = f"    model.{_SWITCH}(False)"
_ON = f"            model.{_SWITCH}(True)\n"

RULE = Rule(
    "DDP910",
    "never-reduced",
    "Under set_requires_gradient_sync(False) a sharded model's gradients add up aside and none is"
    " reduced: its parameters have no gradient, and every step of the optimizer does nothing,"
    " without an error (measured on two ranks).",
    "FSDPModule.set_requires_gradient_sync; docs/fsdp.md",
    lint=lint,
    words=(f".{_SWITCH}(",),
    bad=(
        changed(SHARDED, (_MADE, f"{_MADE}{_OFF}  # DDP910\n")),
        changed(SHARDED, (_BACK, f"        {_OFF}  # DDP910\n{_BACK}")),
        changed(
            SHARDED,
            (_MADE, f"    fully_shard(model.body)\n{_MADE}"),
            (_BACK, f"        {_OFF[:-1]}, recurse=True)  # DDP910\n{_BACK}"),
        ),
        changed(  # in the first epoch
            SHARDED,
            (_MADE, f"{_MADE}    warm = False\n"),
            (_BACK, f"            if not warm:\n            {_OFF}  # DDP910\n{_BACK}"),
            (
                "    for epoch in range(3):\n",
                "    for epoch in range(3):\n        warm = epoch > 0\n",
            ),
        ),
    ),
    good=(
        changed(SHARDED, (_MADE, f"{_MADE}{_OFF}\n"), (_BACK, f"{_ON}{_BACK}")),
        changed(
            SHARDED,
            ("for x, y in loader:", "for i, (x, y) in enumerate(loader):"),
            (_BACK, f"            model.{_SWITCH}(i % 4 == 3)\n{_BACK}"),
        ),
        changed(
            SHARDED, (_BACK, f"            if len(loader) > 9000:\n            {_OFF}\n{_BACK}")
        ),
    ),
    fixes=False,
)
