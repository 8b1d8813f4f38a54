"""Conditions that a library is asked which nobody has read: ``if is_using_ddp():``.

It can say yes only where the program has the library open its group, ``colossalai.launch(…)``.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from ddpify.ranks.model import RankCall, RankGuard
from ddpify.ranks.run import Run

_OPENS: Final = re.compile(r"launch|init|setup", re.IGNORECASE)
# Of these the readers know who opens a group, and how.
_KNOWN: Final = frozenset(
    "torch ddpify accelerate lightning deepspeed horovod mpi4py transformers".split()
)


def asked_library(guard: RankGuard) -> str:
    """The library whose function's answer a condition is; "" where it is not such a one."""
    thing = guard.test.things[0] if len(guard.test.things) == 1 else None
    if guard.test.known or thing is None or thing.kind != "result" or thing.call is None:
        return ""
    name, dot, _ = thing.name.partition(".")
    made = thing.call.target is not None or thing.call.receiver is not None
    foreign = bool(dot) and bool(name) and name not in _KNOWN | sys.stdlib_module_names
    return name if foreign and not made and not thing.call.given else ""


def opens(run: Run, library: str, call: RankCall) -> bool:
    """Whether all ranks have had a library open its group before a call."""
    return any(
        one.name.startswith(f"{library}.") and _OPENS.search(one.method) and one.everywhere
        for one in run.calls
        if one.order < call.order
    )


def unproven(run: Run, call: RankCall) -> bool:
    """Whether a call is made only where a library says so that the program has open nothing."""
    asked = [name for guard in call.conditions if (name := asked_library(guard))]
    return any(not opens(run, name, call) for name in asked)
