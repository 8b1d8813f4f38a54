"""Losses that put the ranks' samples together before they compute: what they give is of all."""

from __future__ import annotations

import re
from typing import Final

from ddpify.ranks.model import RankThing
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.shared.fields import makers
from ddpify.rules.shared.written import attribute_called

_OF_LIBRARIES: Final = ("pytorch_metric_learning.utils.distributed.",)
_GATHERS: Final = re.compile(r"\ball_gather\w*\b")
_DEPTH: Final = 2
_STEP: Final = "training_step"


def gathers_itself(run: Run, thing: RankThing) -> bool:
    """Whether ``self.x(…)`` gave it and an ``x`` that the module may have gathers, or it was made
    in a function that does."""
    if thing.name.startswith(_OF_LIBRARIES) or _is_made_in_one(run, thing):
        return True
    owner, name = attribute_of(thing)
    made = {one for names in makers(owner, name) for one in names} if owner is not None else set()
    return any(one.startswith(_OF_LIBRARIES) for one in made) or any(
        _says(run, info, _DEPTH)
        for cls in _classes(run, {one.rpartition(".")[2] for one in made})
        for info in cls.methods.values()
    )


def _is_made_in_one(run: Run, thing: RankThing) -> bool:
    """Whether what made it stands in a function that gathers, of an object that is no hook's."""
    way = thing.call.way if thing.call is not None else ()
    functions = {one.function for one in way if one.function is not None}
    below = (one for one in functions if one.owner is None or not one.owner.method(_STEP))
    return any(_says(run, one, _DEPTH) for one in below)


def attribute_of(thing: RankThing) -> tuple[ClassDefinition | None, str]:
    """The class and the name of ``self.name`` behind a value, or behind what it returned."""
    if thing.kind == "attribute" and thing.receiver is not None:
        return thing.receiver.cls, thing.name.rpartition(".")[2]
    call = thing.call
    name = attribute_called(call) if call is not None else ""
    if thing.kind != "result" or call is None or not name:
        return None, ""
    things = call.receiver.things if call.receiver is not None else ()
    return next((t.cls for t in things if t.cls is not None), None), name


def _classes(run: Run, names: set[str]) -> list[ClassDefinition]:
    """The classes of the program that have one of these names."""
    held = (module.classes for module in run.modules.values())
    return [classes[name] for classes in held for name in sorted(names & classes.keys())]


def _says(run: Run, info: FunctionDefinition, depth: int) -> bool:
    """Whether a function gathers, or one does that it calls."""
    if _GATHERS.search(info.text):
        return True
    held = (module.functions for module in run.modules.values()) if depth else ()
    below = (functions[name] for functions in held for name in info.called() & functions.keys())
    return any(_says(run, one, depth - 1) for one in below)
