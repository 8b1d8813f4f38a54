"""Whose code a call runs, where that is not read: a library nobody knows, a function chosen late.

``""`` means understood: an operation, a library that is known, or a function of the project.

Objects of unread classes that are given what samples made, and may tell it again. ::

meter.add(loss.item())
if meter.value() > 2: ...       # each rank's own
"""

from __future__ import annotations

import ast
import builtins

from ddpify.facts.details import OfSamples, call_that_made
from ddpify.facts.events import Call
from ddpify.facts.scopes import ClassInfo, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.python.libraries import is_known, takes_away

LATE = "a function that is chosen while the program runs"
# What gives a function that is chosen while the program runs.
CHOOSING = (
    "builtins.getattr",
    "builtins.eval",
    "builtins.__import__",
    "builtins.vars",
    "importlib.",
    "operator.",
)
UNDERSTOOD = (Kind.MODEL, Kind.WRAPPED, Kind.CRITERION, Kind.OPTIMIZER)
DEPTH = 6  # calls between an object and the name of its library


def unread_by(callee: Value, receiver: Value | None, call: Call) -> str:
    """Who runs a call, in words, where that code is not read."""
    if is_bound_nowhere(call):
        return ""
    found = [_unread_callable(thing) for thing in callee.things]
    if not found and call.name.startswith("."):
        found = [_unread_owner(thing) for thing in (receiver or NOTHING).things]
        found += [LATE] if _keeps_something(call.name[1:], receiver or NOTHING) else []
    elif not found:
        found = [LATE]
    return next(filter(None, found), "")


def is_bound_nowhere(call: Call) -> bool:
    """Whether nothing has the name of what is called: it raises a NameError, and runs no code."""
    library, _, name = call.name.partition(".")
    if library != "builtins" or hasattr(builtins, name.partition(".")[0]):
        return False
    imports = (n for n in ast.walk(call.where.frame.module.tree) if isinstance(n, ast.ImportFrom))
    return not any(n.names[0].name == "*" for n in imports)


def _keeps_something(name: str, receiver: Value) -> bool:
    """Whether an object of the project's calls what it keeps under this name: nobody knows what."""
    return any(
        thing.kind is Kind.INSTANCE
        and isinstance(thing.ref, ClassInfo)
        and (name in thing.attrs or not thing.ref.external_bases())
        for thing in receiver.things
    )


def unread_base(info: ClassInfo) -> str:
    """A class that is not read, of which one of the project inherits."""
    return next((name for name in info.external_bases() if not _is_understood(name)), "")


def unread_decorator(info: FunctionInfo) -> str:
    """A decorator that is not read: it may call a function otherwise than it is written."""
    things = (thing for value in info.decorators for thing in value.things)
    return next(filter(None, map(_unread_callable, things)), "")


def _unread_callable(thing: Thing) -> str:
    if isinstance(thing.ref, FunctionInfo):
        return unread_decorator(thing.ref)
    if isinstance(thing.ref, ClassInfo):
        called = thing.kind is Kind.INSTANCE and thing.ref.lookup("__call__") is None
        return unread_base(thing.ref) if called else ""
    if thing.kind is Kind.EXTERNAL:
        return "" if _is_understood(thing.name) else thing.name
    return LATE if thing.kind is Kind.ARGUMENT else _unread_owner(thing)


def _unread_owner(thing: Thing) -> str:
    """Whose methods an object has, where these are not read."""
    if thing.part_of is not None or thing.kind in UNDERSTOOD:
        return ""
    if thing.kind is Kind.INSTANCE and isinstance(thing.ref, ClassInfo):
        return unread_base(thing.ref)
    return _origin(thing) if thing.kind is Kind.UNKNOWN else ""


def _origin(thing: Thing, depth: int = DEPTH) -> str:
    """The unread name that an object of nobody's class comes from."""
    if thing.name.startswith(CHOOSING):
        return LATE
    if "." in thing.name.strip("."):
        return "" if _is_understood(thing.name) else thing.name
    made = call_that_made(thing)
    if made is None or not depth:
        return thing.name or LATE
    if made.unread:
        return made.unread
    owners = made.receiver.things if made.receiver is not None else ()
    found = (_origin(owner, depth - 1) for owner in owners if owner.kind is Kind.UNKNOWN)
    return next(filter(None, found), "")


def _is_understood(name: str) -> bool:
    return is_known(name) and not takes_away(name)


def keep(receiver: Value | None, given: Value) -> None:
    """Remember that such an object was given something of samples."""
    for thing in _objects(receiver):
        before = thing.detail(OfSamples)
        thing.describe(OfSamples(given.deps | (before.deps if before is not None else set())))


def told_again(receiver: Value | None, value: Value) -> Value:
    """What such an object gives: made of what it was given, in a way that is not followed."""
    kept = [one.deps for thing in _objects(receiver) if (one := thing.detail(OfSamples))]
    return value.but(deps=value.deps.union(*kept), measure=Measure.MIXED) if kept else value


def _objects(receiver: Value | None) -> tuple[Thing, ...]:
    unknown = receiver.of(Kind.UNKNOWN) if receiver is not None else ()
    return tuple(thing for thing in unknown if thing.part_of is None)
