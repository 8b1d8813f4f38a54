"""Functions of the project that only print or write: gated at their calls, not line by line."""

from __future__ import annotations

import ast

from ddpify.facts.effects import Effect, EffectKind
from ddpify.facts.events import Call
from ddpify.facts.marks_left import leaves_marks
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind
from ddpify.python import words

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
