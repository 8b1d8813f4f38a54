"""Calls that a user sees from outside: console, files, directories, trackers, checkpoints.

Functions of the project that only print or write: gated at their calls, not line by line.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.marks_left import leaves_marks
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Value
from ddpify.python import words, writers


class EffectKind(Enum):
    """What a call does to the world."""

    CONSOLE = "console"
    FILE = "file"
    DIRECTORY = "directory"
    TRACKER = "tracker"
    CHECKPOINT = "checkpoint"
    OPEN = "open file"
    LOGGING_FILE = "log file"


@dataclass(frozen=True)
class Effect:
    """One call site with an effect."""

    kind: EffectKind
    call: Call


CONSOLE, DIRECTORIES = words.CONSOLE, words.DIRECTORIES
CHECKPOINTS, TRACKERS = frozenset({words.SAVE}), words.TRACKED
FILE_METHODS = frozenset({*writers.METHODS, *writers.OF_PATHS, "save_pretrained", "unlink"})
LOG_FILES = frozenset({"logging.FileHandler", "logging.handlers.RotatingFileHandler"})
# What sets up logging as a file or a dict says, which name files more often than not.
LOG_SET_UP = frozenset({"logging.config.dictConfig", "logging.config.fileConfig"})


def effect_of(call: Call) -> Effect | None:
    """The effect of a call, None when it has none that is known."""
    kind = _by_name(call) or _by_method(call)
    return Effect(kind, call) if kind is not None else None


def _by_name(call: Call) -> EffectKind | None:
    name = call.name
    if name in CONSOLE:
        return EffectKind.CONSOLE
    if name in CHECKPOINTS:
        return EffectKind.CHECKPOINT
    if name in writers.FUNCTIONS:
        return None if _into_own_file(call) else EffectKind.FILE
    if name in DIRECTORIES:
        return EffectKind.DIRECTORY
    if name in TRACKERS:
        return EffectKind.TRACKER
    if name in writers.OPENS and writes(call):
        return EffectKind.OPEN
    if name in LOG_FILES | LOG_SET_UP:
        return EffectKind.LOGGING_FILE
    if name == "logging.basicConfig" and "filename" in call.kwargs:
        return EffectKind.LOGGING_FILE
    return None


def _into_own_file(call: Call) -> bool:
    """Writing to a file object is covered by the opening of that file."""
    place = writers.INTO_FILES.get(call.name)
    target = call.arg(*place) if place is not None else None
    return target is not None and bool(target.dep(Kind.FILE)) and call.alone


def _by_method(call: Call) -> EffectKind | None:
    if not call.name.startswith("."):
        return None
    name = call.name[1:]
    if opens_path(call) and writes(call):
        return EffectKind.OPEN
    if not call.alone:
        return None
    if name == "mkdir":
        return EffectKind.DIRECTORY
    if name == "write" and call.receiver is not None and call.receiver.of(Kind.PROGRESS):
        return EffectKind.CONSOLE  # `bar.write(line)`: above the bar, which stays
    if name in words.PRINTS and call.receiver is not None and _are_printers(call.receiver):
        return EffectKind.CONSOLE
    return EffectKind.FILE if name in FILE_METHODS or _saves(call) else None


def _are_printers(value: Value) -> bool:
    """``pprint.PrettyPrinter()``, ``rich.console.Console()``: what prints to the console."""
    made = [call_that_made(thing) for thing in value.things if thing.name in words.PRINTERS]
    plain = all(one is not None and {"stream", "file"}.isdisjoint(one.kwargs) for one in made)
    return bool(made) and len(made) == len(value.things) and plain


def _saves(call: Call) -> bool:
    """``picture.save(path)``, of something that is no part of the project, nor a model."""
    receiver = call.receiver
    if call.name != ".save" or call.target is not None or not (call.args or call.kwargs):
        return False
    return receiver is not None and all(t.kind is Kind.UNKNOWN for t in receiver.things)


def opens_path(call: Call) -> bool:
    """``path.open("wb")``, of a path or whatever has such a method and is not of the project."""
    if call.name != ".open" or call.target is not None:
        return False
    mode = call.arg(0, "mode")
    return mode is None or (mode.known and writers.is_mode(mode.const))


def writes(call: Call) -> bool:
    """Whether ``open(...)`` and the like may write: the mode is not just reading."""
    mode = call.arg(0 if call.name == ".open" else 1, "mode")
    if mode is None:
        return writers.opens_to_write(call.name, "r")
    return writers.opens_to_write(call.name, str(mode.const) if mode.known else None)


# What such a function must not do: other ranks would miss it.
NOT_ALONE = words.EXITS | {".backward", ".step", ".state_dict"}
VISIBLE = (EffectKind.CONSOLE, EffectKind.FILE, EffectKind.TRACKER)
# Beside those: files that the function opens for itself, and their directories.
OWN = (EffectKind.OPEN, EffectKind.DIRECTORY)


def io_helpers(
    calls: tuple[Call, ...], effects: tuple[Effect, ...], trees: dict[str, Tree]
) -> frozenset[FunctionInfo]:
    """Plain functions with several visible effects, called for those alone."""
    counted: dict[FunctionInfo, set[object]] = {}
    for effect in effects:
        info = effect.call.where.function
        shows = effect.kind in VISIBLE and effect.call.alone
        if info is not None and (shows or effect.kind in OWN):
            counted.setdefault(info, set()).add(effect.call.site)
    return frozenset(
        info
        for info, sites in counted.items()
        if len(sites) > 1 and info.owner is None and _only_effects(info, calls, effects, trees)
    )


def _only_effects(
    info: FunctionInfo,
    calls: tuple[Call, ...],
    effects: tuple[Effect, ...],
    trees: dict[str, Tree],
) -> bool:
    mine = [c for c in calls if c.target is info]
    if not mine or not all(c.alone for c in mine) or isinstance(info.node, ast.Lambda):
        return False
    if any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(info.node)):
        return False
    own = [e for e in effects if _runs_in(e.call, info)]
    if any(e.kind not in VISIBLE + OWN or not _is_own(e) for e in own):
        return False
    inside = [c for c in calls if _runs_in(c, info)]
    if any(c.name in NOT_ALONE or c.unread or _is_forward(c) for c in inside):
        return False
    functions = {c.where.function for c in inside} | {c.target for c in inside} | {info}
    return not any(f is not None and leaves_marks(f.node, trees.values()) for f in functions)


def _is_own(effect: Effect) -> bool:
    """Whether a file that is opened stays in the function that opens it."""
    info = effect.call.where.function
    if effect.kind is not EffectKind.OPEN or info is None:
        return effect.kind is not EffectKind.OPEN
    return not any(isinstance(node, (ast.Return, ast.Yield)) for node in ast.walk(info.node))


def _is_forward(call: Call) -> bool:
    return any(output.born == call.site for output in call.result.dep(Kind.FORWARD))


def _runs_in(call: Call, info: FunctionInfo) -> bool:
    """Whether a call happens in this function or in what it calls."""
    frame: Frame | None = call.where.frame
    while frame is not None:
        if frame.function is info:
            return True
        frame = frame.caller
    return False
