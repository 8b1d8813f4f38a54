"""Which models have batch norm: those whose class makes one, or makes an object whose class does.

A class is read once, however many objects it makes, so that the question is asked of classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.events import Call
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.values import Kind, Thing

MODULES = (Kind.MODEL, Kind.WRAPPED)


def has_norms(model: Thing, norms: Iterable[Call], calls: Iterable[Call]) -> bool:
    """Whether a model may hold one of the layers that ``norms`` make.

    What is made outside and given to its constructor is not looked for.
    """
    layers = list(norms)
    if not layers or not isinstance(model.ref, ClassInfo):
        return bool(layers)
    everything = list(calls)
    made = [call for call in everything if any(t.born == call.site for t in call.result.things)]
    own = [call for call in made if model in call.result.things]
    given = (value for call in own for value in (*call.args, *call.kwargs.values()))
    if any(value.dep(*MODULES) for value in given):
        return True
    owners = {owner for call in layers for owner in _owners(call)}
    if any(not any(_owners(call)) for call in layers):  # made in no class, used who knows where
        return True
    return not owners.isdisjoint(_built(model.ref, made))


def _built(info: ClassInfo, made: list[Call]) -> set[ClassInfo]:
    """The class, its bases, and the classes of all that their constructors make."""
    found: set[ClassInfo] = set()
    todo = [info]
    while todo:
        for one in todo.pop().mro():
            if one not in found:
                found.add(one)
                todo += [c for call in made if one in _owners(call) for c in _classes(call)]
    return found


def _classes(call: Call) -> Iterator[ClassInfo]:
    refs = (thing.ref for thing in call.result.things)
    return (ref for ref in refs if isinstance(ref, ClassInfo))


def _owners(call: Call) -> Iterator[ClassInfo]:
    """The classes in whose methods, or in functions called by them, a call is made."""
    frame: Frame | None = call.where.frame
    while frame is not None:
        if frame.function is not None and frame.function.owner is not None:
            yield frame.function.owner
        frame = frame.caller
