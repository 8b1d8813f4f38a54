"""Which models have batch norm: those whose class makes one, or makes an object whose class does.

A class is read once, however many objects it makes, so that the question is asked of classes.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpify.facts.events import Call
from ddpify.facts.scopes import ClassInfo, Frame, ModuleInfo
from ddpify.facts.values import Kind, Thing

MODULES = (Kind.MODEL, Kind.WRAPPED)
Made = Mapping[ClassInfo, Sequence[Thing]]


def has_norms(model: Thing, norms: Iterable[Call], calls: Iterable[Call]) -> bool:
    """Whether a model may hold one of the layers that ``norms`` make.

    What is made outside and given to its constructor is not looked for.
    """
    layers = list(norms)
    if not layers or not isinstance(model.ref, ClassInfo):
        return bool(layers)
    calls = list(calls)
    own = [call for call in makers(calls) if model in call.result.things]
    given = (value for call in own for value in (*call.args, *call.kwargs.values()))
    if any(value.dep(*MODULES) for value in given):
        return True
    owners = {owner for call in layers for owner in _owners(call)}
    if any(not any(_owners(call)) for call in layers):  # made in no class, used who knows where
        return True
    return not owners.isdisjoint(built(model, by_class(calls)))


def keeps_means(module: ModuleInfo) -> bool:
    """Whether instance norms of a file keep statistics: of samples, which ranks have apart. ::

    functools.partial(nn.InstanceNorm2d, affine=False, track_running_stats=True)
    """
    if "InstanceNorm" not in module.source.text:
        return False
    calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return any(_tracks(call) for call in calls if "InstanceNorm" in ast.unparse(call))


def _tracks(call: ast.Call) -> bool:
    told = {one.arg: one.value for one in call.keywords}
    if ast.unparse(call.func).rpartition(".")[2].startswith("InstanceNorm") and call.args[4:]:
        told["track_running_stats"] = call.args[4]
    value = told.get("track_running_stats")
    return value is not None and not (isinstance(value, ast.Constant) and not value.value)


def makers(calls: Iterable[Call]) -> list[Call]:
    """The calls that make what they give."""
    return [call for call in calls if any(t.born == call.site for t in call.result.things)]


def by_class(calls: Iterable[Call]) -> Made:
    """What is made in the methods of each class, and in the functions they call."""
    found: defaultdict[ClassInfo, list[Thing]] = defaultdict(list)
    for call in makers(calls):
        for owner in dict.fromkeys(_owners(call)):
            found[owner] += call.result.things
    return found


def built(model: Thing, made: Made) -> dict[ClassInfo, Thing]:
    """The model's class, its bases, and those of all its parts, with one thing of each."""
    found: dict[ClassInfo, Thing] = {}
    todo = [model]
    while todo:
        thing = todo.pop()
        for one in thing.ref.mro() if isinstance(thing.ref, ClassInfo) else ():
            if one not in found:
                found[one] = thing
                todo += [t for kept in thing.attrs.values() for t in kept.of(Kind.MODEL)]
                todo += made.get(one, ())
    return found


def _owners(call: Call) -> Iterator[ClassInfo]:
    """The classes in whose methods, or in functions called by them, a call is made."""
    frame: Frame | None = call.where.frame
    while frame is not None:
        if frame.function is not None and frame.function.owner is not None:
            yield frame.function.owner
        frame = frame.caller
