"""Models that Fabric has set up, and that are trained by the name that they had before."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.prepared import SETS_UP
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import scope_nodes
from ddpify.rules.shared.wrapped import live


def as_before(run: Run, calls: Iterable[RankCall]) -> Iterator[tuple[RankCall, RankCall]]:
    """Forwards of what ``setup()`` was given, which a backward goes through, and that call."""
    given = [(v, call) for call in calls if call.name in SETS_UP for v in call.args if v.things]
    losses = [one for call in run.methods("backward") for one in call.inputs]
    trained = {thing.call for loss in losses for thing in live(loss)}
    for forward in run.methods("__call__", "forward") if given else ():
        own = forward.receiver
        if own is None or forward not in trained or not _is_of_one_name(forward):
            continue
        alike = (c for v, c in given if v.things == own.things and c.order < forward.order)
        if (call := next(alike, None)) is not None:
            yield forward, call


def _is_of_one_name(forward: RankCall) -> bool:
    """Whether a model is called by a name to which its function gives the new model only."""
    things = forward.receiver.things if forward.receiver is not None else ()
    name, made = forward.node.func, {t.call.node for t in things if t.call is not None}
    if not isinstance(name, ast.Name):
        return False
    nodes = list(scope_nodes(forward))
    names = (one for one in nodes if isinstance(one, ast.Name) and one.id == name.id)
    sets = [one for one in names if isinstance(one.ctx, ast.Store)]
    makes = [one for one in nodes if isinstance(one, ast.Assign) and one.value in made]
    return len(sets) == 1 and any(sets[0] in one.targets for one in makes)
