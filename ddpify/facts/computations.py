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
# What a data set may not ask of a library while it is made, if that is to be samples.
FOLLOWED = ("torch.", "torchvision.", "random.", "builtins.", "ddpify.")
TRAINS = frozenset(
    """backward step zero_grad parameters named_parameters buffers named_buffers modules children
    state_dict load_state_dict seed manual_seed""".split()
)
METHODS = frozenset(
    """append extend insert copy astype reshape ravel flatten squeeze transpose swapaxes sum mean
    min max std var sort any all argmax argmin argsort cumsum clip round dot fill tolist format join
    split keys values items get fit transform fit_transform drop apply remove index""".split()
)


def is_computation(event: Event, own: set[Thing], data: bool = False) -> bool:
    """Whether an event says nothing of training, and leaves nothing behind but in ``own``.

    ``data``: in the constructor of a data set, where what a library gives is samples.
    """
    if isinstance(event, Forward):
        return False
    if isinstance(event, Bind):
        return True  # to a name; before one to an attribute comes an access
    if isinstance(event, Access):
        if event.stored:
            return set(event.base.things) <= own
        return all(_is_plain(t, own) for t in event.base.things)
    effect = effect_of(event)
    if effect is not None and effect.kind is EffectKind.DIRECTORY and data:
        return _is_given_plain(event, own)
    if effect is not None and effect.kind is not EffectKind.CONSOLE:
        return False
    if event.target is not None:
        return True  # a body speaks for itself
    return _is_given_plain(event, own) and (_computes(event) or (data and _gives_data(event)))


def _is_given_plain(call: Call, own: set[Thing]) -> bool:
    given = (*call.args, *call.kwargs.values(), call.receiver or NOTHING)
    return all(_is_plain(t, own) for value in given for t in value.things)


def _computes(call: Call) -> bool:
    """Whether a call of what is not a function of the project computes with what it is given."""
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


def _gives_data(call: Call) -> bool:
    """Whether a library gives a data set what it holds: ``h5py.File(path)["x"].astype(int)``."""
    if call.name.startswith("."):
        return call.name[1:] not in TRAINS
    iterates = call.name in ("builtins.iter", "builtins.next")
    return iterates or ("." in call.name and not call.name.startswith(FOLLOWED))


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, Exception)


def _is_plain(thing: Thing, own: set[Thing]) -> bool:
    kinds = (*CONTAINERS, *NAMED, Kind.FUNCTION, Kind.ARGUMENT, Kind.INDEX)
    return thing.kind in kinds or thing in own or is_array(thing)
