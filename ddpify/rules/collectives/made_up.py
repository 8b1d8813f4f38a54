"""A forward on one rank that the next training step makes up for.

DDP broadcasts buffers in a forward only if the forward before it was one with gradients. After
rank 0's forward under no_grad its next training forward does not broadcast, and that of the others
meets the broadcast that rank 0 has made already (run on two ranks: as many on each, equal weights).
Any other collective in between would meet it instead; so does, behind the very first step, what
DDP agrees on in the second: its buckets.
"""

from __future__ import annotations

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.ranks.trace import Mismatch
from ddpify.rules.shared.exchanges import exchanges
from ddpify.rules.shared.wrapped import receives


def is_made_up(run: Run, one: Mismatch) -> bool:
    """Whether the others' next meeting is the training forward of the same model."""
    call, model = one.event.call, _model(one)
    if call is None or model is None or one.paths[1]:
        return False
    trained = [c for c in run.methods("__call__", "forward") if c.grad and receives(c, model)]
    meetings = [*exchanges(run), *trained]
    later = [c for c in meetings if c.order > call.order]
    following = min(later, key=lambda c: c.order, default=None)
    if following not in trained or following.ranks != ALL:
        return False
    around = [loop for loop in call.loops if loop not in following.loops]
    return not any(loop in c.loops for loop in around for c in meetings)


def _model(one: Mismatch) -> RankThing | None:
    """The DDP model that some ranks call, without gradients, and nothing else."""
    calls: list[RankCall | None] = [event.call for event in one.paths[0] if event.op == "forward"]
    models = {
        call.receiver.things[0]
        for call in calls
        if call is not None and not call.grad and call.receiver is not None
    }
    if one.kind != "guard" or len(calls) != len(one.paths[0]) or len(models) != 1:
        return None
    model = models.pop()
    return model if model.name == words.DDP else None
