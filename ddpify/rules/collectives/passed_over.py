"""Errors of one rank after which a loop goes on with its next round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.attempts import Attempt, Handler, raised_by
from ddpify.ranks.model import RankCall, RankLoop, RankValue
from ddpify.ranks.origins import DATA, IDENTITY, RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.shared.exchanges import JOINS

EMPTY: Final = frozenset({"barrier", "monitored_barrier", "wait_for_everyone"})
_READERS: Final = frozenset({"torch.load", "numpy.load", "builtins.open"})
_OF_FILES: Final = frozenset("OSError IOError FileNotFoundError EOFError".split())
# What a sample raises that is too long, out of the vocabulary, or of another shape.
_OF_SAMPLES: Final = frozenset("ValueError IndexError AssertionError ZeroDivisionError".split())


def met_alone(run: Run, call: RankCall, tried: Attempt) -> set[str]:
    """The errors that one rank meets alone before it comes to a call in a ``try``: raised by a
    function that is called there, as what the rank has for itself says, or in reading its file;
    by what computes with its samples."""
    before = [one for one in run.calls if one.order < call.order and tried in one.swallows]
    entered = {one.target for one in before if one.target is not None}
    entered |= {one.function for one in before if one.function and not one.site.within(tried.body)}
    told = [one.exit for one in run.mismatches]  # by DDP802 and DDP803
    found = {
        name
        for left in run.exits
        if left.function in entered and isinstance(left.node, ast.Raise) and left.order < call.order
        if left not in told
        if any(
            _is_own(guard.test) for guard in left.guards if guard.site.within(left.function.site)
        )
        for name in raised_by(left.node)
    }
    own = (one for one in before if one.name in _READERS and one.args and _is_own(one.args[0]))
    found |= _OF_FILES if any(own) else set()
    bad = any(_is_own(value) for one in before if one.grad for value in one.inputs)
    return found | _OF_SAMPLES if bad and call.grad else found


def skipped(run: Run, met: list[RankCall]) -> Iterator[tuple[RankCall, Handler]]:
    """What the others meet in, in a round that one rank leaves by the ``continue`` of a handler:
    for an error that it surely meets alone."""
    tries = dict.fromkeys(tried for one in run.calls for tried in one.swallows)
    for left in (one for one in run.exits if one.kind == "continue" and one.loops):
        for tried in tries:
            handler = next((h for h in tried.handlers if left.site.within(h.body)), None)
            if handler is None or any(one.place_in(handler.body) for one in met):
                continue  # the ranks agree there
            loop, gone = left.loops[-1].site, left.site
            later = (c for c in met if any(gone < o.site and o.site.within(loop) for o in c.way))
            call = next((c for c in later if c.everywhere and not c.within(*JOINS)), None)
            if call is not None and handler.is_for(met_alone(run, call, tried)):
                yield call, handler


def _is_own(value: RankValue) -> bool:
    """Whether a rank has something else than the others, on the same disk and at the same time."""
    return any(origin.kind in (DATA, RANDOM, *IDENTITY) for origin in value.origins)


def is_passed_over(call: RankCall) -> bool:
    """Whether a loop goes on after an error of one rank alone at, or before, a call."""
    return any(is_repeated(call, one) and any(one.passes_over()) for one in call.swallows)


def is_repeated(call: RankCall, tried: Attempt) -> bool:
    """Whether a loop around the ``try`` goes on with the next round."""
    return any(_around(call, tried))


def _around(call: RankCall, tried: Attempt) -> tuple[list[RankLoop], list[RankLoop]]:
    """The loops around a ``try`` in its function, and those around the calls of that."""
    depth = next((n for n, one in enumerate(call.way) if one.site.within(tried.body)), None)
    if depth is None:
        return [], []
    loops = call.way[depth].loops
    before = [loop for loop in loops if any(loop in one.loops for one in call.way[:depth])]
    own = (loop for loop in loops if loop not in before)
    return [loop for loop in own if tried.site.within(loop.site)], before


def goes_on(call: RankCall, tried: Attempt, handler: Handler, met: list[RankCall]) -> bool:
    """Whether a rank comes to more exchanges after a handler that passes an error at one over."""
    own, before = _around(call, tried)
    if handler.leaves == "return":
        left, rest = own[:1], before
    elif handler.leaves == "break" and own:
        left, rest = own[-1:], [*before, *own[:-1]]
    else:
        return True
    gone = left[0].site if left else tried.site
    later = (one for one in met if one.order > call.order)
    return bool(rest) or any(one.place_in(gone) is None for one in later)


def is_retried(call: RankCall, tried: Attempt) -> bool:
    """Whether nothing can fail behind a barrier in a ``try`` that is repeated until it comes there:
    however often a rank has tried, it meets the others once. ``while True: try: …; return``."""
    own, _ = _around(call, tried)
    place = call.place_in(tried.body)
    loop = own[-1].node if own else None
    if not isinstance(loop, ast.While) or not isinstance(loop.test, ast.Constant):
        return False
    if place is None or call.method not in EMPTY:
        return False
    module = own[-1].module
    for node in ast.walk(loop):
        if isinstance(node, ast.Try) and module.site(node) == tried.site:
            behind = [one for one in node.body if place < module.site(one)]
            return bool(behind) and all(map(_hands_out, behind))
    return False


def _hands_out(node: ast.stmt) -> bool:
    """``return rows``, ``yield rows``, ``break``: the round has done what it was for."""
    given = isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)
    return given or isinstance(node, (ast.Return, ast.Break))
