"""Events that only compute: they say nothing of training and leave nothing behind."""

from __future__ import annotations

import builtins

from ddpify.facts.effects import EffectKind, effect_of
from ddpify.facts.events import Access, Bind, Call, Forward
from ddpify.facts.kinds import CONTAINERS, LIBRARIES, NAMED, is_array
from ddpify.facts.values import NOTHING, Kind, Thing

Event = Call | Bind | Access | Forward
BUILTINS = frozenset(
    """print len range enumerate zip min max abs sum int float str bool list tuple dict set sorted
    reversed isinstance round any all pow divmod slice type""".split()
)
METHODS = frozenset(
    """append extend insert copy astype reshape ravel flatten squeeze transpose swapaxes sum mean
    min max std var sort any all argmax argmin argsort cumsum clip round dot fill tolist format join
    split keys values items get fit transform fit_transform drop apply remove index""".split()
)


def is_computation(event: Event, own: set[Thing]) -> bool:
    """Whether an event says nothing of training, and leaves nothing behind but in ``own``."""
    if isinstance(event, Forward):
        return False
    if isinstance(event, Bind):
        return True  # to a name; before one to an attribute comes an access
    if isinstance(event, Access):
        if event.stored:
            return set(event.base.things) <= own
        return all(_is_plain(t, own) for t in event.base.things)
    effect = effect_of(event)
    if effect is not None and effect.kind is not EffectKind.CONSOLE:
        return False
    return event.target is not None or _computes(event, own)  # a body speaks for itself


def _computes(call: Call, own: set[Thing]) -> bool:
    """Whether a call of what is not a function of the project computes with what it is given."""
    given = (*call.args, *call.kwargs.values(), call.receiver or NOTHING)
    if not all(_is_plain(t, own) for value in given for t in value.things):
        return False
    package, _, tail = call.name.rpartition(".")
    made = [t for t in call.result.things if t.kind is Kind.UNKNOWN]
    if not call.name:  # `CubicSpline(steps, warps)(x)`
        return bool(made) and all(t.name.startswith(LIBRARIES) for t in made)
    if call.name.startswith("."):
        return tail in METHODS
    if not package:  # a class or an object of the project, unless it is not known
        return all(t.name != call.name for t in made)
    if package == "builtins":
        return tail in BUILTINS or _is_exception(tail)
    return call.name.startswith(LIBRARIES)


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, Exception)


def _is_plain(thing: Thing, own: set[Thing]) -> bool:
    kinds = (*CONTAINERS, *NAMED, Kind.FUNCTION, Kind.ARGUMENT, Kind.INDEX)
    return thing.kind in kinds or thing in own or is_array(thing)
