"""Which GPUs a program shows itself: what it writes into ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.options import default_of
from ddpify.rules.shared.parents import in_parent
from ddpify.rules.shared.placing import VISIBLE


def choices(run: Run) -> Iterator[tuple[Store, str]]:
    """Each choice that is the same on all ranks, with the numbers of the GPUs."""
    for store in run.stores:
        ours = store.key == VISIBLE and store.element and "os.environ" in store.base.names()
        if not ours or store.ranks != ALL or store.value.by_rank or in_parent(run, store):
            continue
        numbers = _numbers(run, store.value)
        if numbers and not any(guard.test.by_rank for guard in store.guards):
            yield store, numbers


def _numbers(run: Run, value: RankValue) -> str:
    """The GPUs named here, or by an option's default; `--device 0,1` is the user's word."""
    text = str(value.constant if value.constant is not None else default_of(run, value))
    return text if re.fullmatch(r"\d+(,\s*\d+)*", text) else ""


def shows_one(run: Run) -> bool:
    """Whether a program takes one GPU, whatever else: several processes would share it."""
    asked = ((store, numbers) for store, numbers in choices(run) if "," not in numbers)
    return any(all(guard.test.known for guard in store.guards) for store, _ in asked)
