"""Whether all ranks surely come to a call: nothing on the way there may be about the rank.

A condition is in doubt that was not decided and may ask for the rank, by what its value was
computed from, by what is kept under its names, or by its words. So is what leaves before, a
decorator or a ``with`` block of a library that is not read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from ddpify.ranks.events import Exit
from ddpify.ranks.model import ALL, RankCall, RankGuard, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.trace import ABORT
from ddpify.ranks.words import FRAMEWORK_MAINS
from ddpify.rules.shared.rank_words import asked, asks_rank, ends_others, names_rank, writer
from ddpify.rules.shared.syntax import scope

# A variable by which a launcher says who this is: TASK_INDEX, SM_CURRENT_HOST, one not known. The
# id of a run is that of all.
_VARIABLE = re.compile(
    r"environ\[(None|[^]]*(?<![A-Z])(RANK|PROC|TASK|NODE|LOCAL|WORKER|INDEX|HOST)(ID|NAME)?(?![A-Z]))"
)
_NAMED = ("result", "attribute", "external", "parameter")


def in_doubt(run: Run, call: RankCall) -> bool:
    """Whether something that is not decided may keep some ranks from a call."""
    return (
        any(asks(run, guard, frame) for frame, guard in _conditions(call))
        or any(map(_keeps_out, call.contexts))
        or any(_is_marked(entered) for entered in call.stack)
        or _may_have_left(run, call)
    )


def _conditions(call: RankCall) -> Iterator[tuple[RankCall, RankGuard]]:
    """The conditions of a call, each with the call of the way in whose function it stands."""
    seen = 0
    for frame in call.way:
        yield from ((frame, guard) for guard in frame.guards[seen:])
        seen = len(frame.guards)


def asks(run: Run, guard: RankGuard, frame: RankCall | None = None) -> bool:
    """Whether a condition that is not decided may be about the rank.

    An exception is each rank's own: the first that comes may find the file missing, no other does.
    Which packages are installed is the same for all. SLURM_PROCID and the like are the rank.
    """
    if guard.test.known:
        return False
    said = [str(atom) for atom in guard.test.atoms]
    if any("except@" in text for text in said):
        return ast.unparse(guard.node) not in ("ImportError", "ModuleNotFoundError")
    if guard.test.by_rank or of_rank(guard.test) or any(map(_VARIABLE.search, said)):
        return True
    foreign = any(guard.test.sources())  # and not made here, of numbers alone
    if (foreign and asks_rank(guard.node)) or _is_kept_apart(run, guard):
        return True
    if _is_foreign_writer(run, guard):
        return True
    return frame is not None and any(map(asks_rank, _behind(guard.node, frame)))


def _keeps_out(block: RankValue) -> bool:
    """Whether a ``with`` block may be one rank's: not where one goes first, and the others after
    it, ``accelerator.main_process_first()``."""
    names = (thing.name.rpartition(".")[2] for thing in block.sources() if _is_called_so(thing))
    return any(not name.endswith("first") for name in names)


def of_rank(value: RankValue) -> bool:
    """Whether what a library gave, of which a value was made, is called after a rank."""
    return any(map(_is_called_so, value.sources()))


def _is_called_so(thing: RankThing) -> bool:
    name = thing.name.rpartition(".")[2]
    return thing.kind in _NAMED and (names_rank(name) or name in FRAMEWORK_MAINS)


def _is_foreign_writer(run: Run, guard: RankGuard) -> bool:
    """Whether it asks for a writer that a class of a library makes, on one rank as like as not."""
    name = writer(guard.node)
    if not name or any("parse_args" in thing.name for thing in guard.test.sources()):
        return False
    set_here = (target for one in run.modules.values() for target, _ in one.assigned)
    return not any(target.endswith(f".{name}") for target in set_here)


def _is_kept_apart(run: Run, guard: RankGuard) -> bool:
    """Whether an attribute or an entry that is asked for was set to what the rank says:
    ``params["log"] = rank == 0``."""
    names = {one.attr for one in ast.walk(guard.node) if isinstance(one, ast.Attribute)}
    asked = set(guard.test.sources())
    return any(
        store.key in names and store.value.by_rank and not asked.isdisjoint(store.base.things)
        for store in run.stores
    )


def _behind(test: ast.expr, frame: RankCall) -> Iterator[ast.expr]:
    """The ``if`` around what sets the names in a condition; attributes are set elsewhere, too."""
    for one in asked(test):
        if isinstance(one, (ast.Name, ast.Attribute)):
            block = scope(frame) if isinstance(one, ast.Name) else frame.module.tree
            yield from _tests_around(block).get(ast.unparse(one), ())


@lru_cache(maxsize=1024)  # of one file thousands of conditions are asked
def _tests_around(block: ast.AST) -> dict[str, dict[ast.expr, None]]:
    """The conditions under which each name and attribute is set."""
    found: dict[str, dict[ast.expr, None]] = {}
    for one in (node for node in ast.walk(block) if isinstance(node, ast.If)):
        for node in ast.walk(one):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                found.setdefault(ast.unparse(node), {})[one.test] = None
    return found


def _is_marked(entered: RankCall) -> bool:
    """Whether a function that was entered has a decorator that is called after a rank."""
    function = entered.target.node if entered.target is not None else None
    return any(map(asks_rank, getattr(function, "decorator_list", ())))


def _may_have_left(run: Run, call: RankCall) -> bool:
    """Whether some ranks may have left a function that was entered, or the program, before.

    ``if gathered: if rank: return``: those that go on do not gather, or are one rank.
    """
    entries = [None, *call.stack]
    for entered, frame in zip(entries, call.way, strict=True):
        since = entered.order if entered is not None else -1
        for leave in run.exits_of.get(frame.function, ()):
            if since < leave.order < call.order and _parts(run, leave, frame):
                return True
    ended = (one for one in run.exits if one.kind == "stop" and one.order < call.order)
    return any(_parts(run, one, None) for one in ended) or _is_ended(run, call)


def _parts(run: Run, leave: Exit, frame: RankCall | None) -> bool:
    """Whether some ranks may leave there; a handler that raises again ends the whole run."""
    guards = [one for one in leave.guards if leave.kind != ABORT or not _is_handler(one)]
    return leave.ranks != ALL or any(asks(run, guard, frame) for guard in guards)


def _is_handler(guard: RankGuard) -> bool:
    return any("except@" in str(atom) for atom in guard.test.atoms)


def _is_ended(run: Run, call: RankCall) -> bool:
    """Whether a library may have ended the other ranks: ``launcher.exit_unless_leader()``."""
    return any(
        one.alone and one.order < call.order and ends_others(one.method) for one in run.calls
    )
