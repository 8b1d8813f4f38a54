"""Calls that a user sees from outside: console, files, directories, trackers, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ddpify.facts.events import Call
from ddpify.facts.values import Kind
from ddpify.python import words


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


CONSOLE, FILES, DIRECTORIES = words.CONSOLE, words.FILES, words.DIRECTORIES
CHECKPOINTS, TRACKERS = frozenset({words.SAVE}), words.TRACKED
METHOD_EFFECTS = {
    "savefig": EffectKind.FILE,
    "save_pretrained": EffectKind.FILE,
    "to_csv": EffectKind.FILE,
    "write_text": EffectKind.FILE,
    "write_bytes": EffectKind.FILE,
    "mkdir": EffectKind.DIRECTORY,
    "unlink": EffectKind.FILE,
}
LOG_FILES = frozenset({"logging.FileHandler", "logging.handlers.RotatingFileHandler"})


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
    if name in FILES:
        return None if name == words.JSON and _own_file(call) else EffectKind.FILE
    if name in DIRECTORIES:
        return EffectKind.DIRECTORY
    if name in TRACKERS:
        return EffectKind.TRACKER
    if name == "builtins.open" and writes(call):
        return EffectKind.OPEN
    if name in LOG_FILES or (name == "logging.basicConfig" and "filename" in call.kwargs):
        return EffectKind.LOGGING_FILE
    return None


def _own_file(call: Call) -> bool:
    """Writing to a file object is covered by the opening of that file."""
    target = call.arg(1, "fp")
    return target is not None and bool(target.dep(Kind.FILE)) and call.alone


def _by_method(call: Call) -> EffectKind | None:
    if not call.name.startswith("."):
        return None
    return METHOD_EFFECTS.get(call.name[1:]) if call.alone else None


def writes(call: Call) -> bool:
    """Whether ``open(...)`` may write: its mode is given and is not just reading."""
    mode = call.arg(1, "mode")
    if mode is None:
        return False
    return not mode.known or any(letter in str(mode.const) for letter in "wax+")
