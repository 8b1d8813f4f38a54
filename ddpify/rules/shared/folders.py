"""What a program makes, removes and lists on disk, and which path leads into which folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final

from ddpify.ranks.events import Exit
from ddpify.ranks.model import RankCall, RankGuard, RankThing, RankValue
from ddpify.ranks.origins import FILES, TEXT, Origin, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import same
from ddpify.ranks.words import FILE_TESTS, PATH_TESTS

# Calls whose result is the path of what they are given, one part after the other.
_JOINS: Final = frozenset({"os.path.join", "pathlib.Path", "pathlib.PurePath"})
_ALIKE: Final = frozenset(
    "builtins.str os.fspath os.path.abspath os.path.realpath os.path.normpath".split()
)
_LISTS: Final = {
    "os.listdir": "path",
    "os.scandir": "path",
    "os.walk": "top",
    "glob.glob": "pathname",
    "glob.iglob": "pathname",
}
_OF_PATHS: Final = frozenset({"glob", "rglob", "iterdir"})
_REMOVES: Final = {name: "path" for name in "os.remove os.unlink os.rmdir shutil.rmtree".split()}
_REMOVING: Final = frozenset({"unlink", "rmdir"})
_SAME: Final = frozenset({"resolve", "absolute", "expanduser"})  # methods of a path
_HOLE: Final = re.compile(r"\{\}")  # those that are filled in order
_DEPTH: Final = 12


def made(call: RankCall) -> RankValue | None:
    """The path of the directory that a call makes."""
    if call.name in ("os.mkdir", "os.makedirs"):
        return call.arg(0, "path" if call.name == "os.mkdir" else "name")
    return _path(call, frozenset({"mkdir"}))


def removed(call: RankCall) -> RankValue | None:
    """The path that a call removes."""
    if call.name in _REMOVES:
        return call.arg(0, _REMOVES[call.name])
    return _path(call, _REMOVING)


def listed(call: RankCall) -> RankValue | None:
    """The folder, or the pattern, of which a call lists the files."""
    if call.name in _LISTS:
        return call.arg(0, _LISTS[call.name])
    return _path(call, _OF_PATHS)


def looked_for(call: RankCall) -> RankValue | None:
    """The path of which a call asks if it is there."""
    if call.name in FILE_TESTS:
        return call.arg(0, "path")
    return _path(call, PATH_TESTS)


def is_race(run: Run, call: RankCall, path: RankValue) -> bool:
    """Whether ranks fail at a call that makes or removes something only if they come at one time:
    each looks for files before, or removes what it has found or what another has made again."""
    if any(map(_looks, call.guards)) or any(_is_found(thing) for thing in path.sources()):
        return True
    if any(_has_looked(leave, call) for leave in run.exits):
        return True
    removals = (removed(one) for one in run.calls if one.order < call.order)
    return any(one is not None and all(map(same, one.atoms, path.atoms)) for one in removals)


def _looks(guard: RankGuard) -> bool:
    return any(map(is_look, guard.test.origins))


def is_look(origin: Origin) -> bool:
    """Whether it is a look at the files: in a loop, each rank does it at its own time."""
    return origin.kind == FILES or origin.what in FILE_TESTS


def _is_found(thing: RankThing) -> bool:
    return thing.call is not None and listed(thing.call) is not None


def _has_looked(leave: Exit, call: RankCall) -> bool:
    """``if os.path.isdir(path): return`` in a function on the way to a call."""
    entered = (one for one in call.stack if one.target is leave.function)
    return any(one.order < leave.order < call.order for one in entered) and any(
        map(_looks, leave.guards)
    )


def _path(call: RankCall, methods: frozenset[str]) -> RankValue | None:
    """The receiver of one of these methods, if it is a path."""
    if call.method not in methods or call.receiver is None:
        return None
    paths = any(thing.name.startswith("pathlib.") for thing in call.receiver.sources())
    return call.receiver if paths and not any(map(_is_other, call.receiver.things)) else None


def _is_other(thing: RankThing) -> bool:
    """``SharedMemory(path.name)``: an object of another class, made from a path."""
    named = thing.name.rpartition(".")[2][:1].isupper()
    return thing.kind in ("result", "instance") and named and not thing.name.startswith("pathlib.")


def within(path: RankValue, folder: RankValue, rank: int) -> bool:
    """Whether a path surely is a folder, or leads into it."""
    inner, outer = spelled(path, rank), spelled(folder, rank).rstrip("/")
    return bool(outer) and (inner == outer or inner.startswith(f"{outer}/"))


def spelled(path: RankValue, rank: int) -> str:
    """The text of a path on one rank; what is not known of it stands there by its name."""
    known = {f"{thing.name}@{id(thing)}": thing for thing in path.sources()}
    return "".join(_spelled(path.atoms[rank], known, rank, _DEPTH)).removeprefix("./")


def _spelled(atom: Any, known: Mapping[str, RankThing], rank: int, depth: int) -> Iterator[str]:
    if not isinstance(atom, Symbol):
        yield str(atom)
        return
    kind, *parts = atom.parts or ("",)
    thing = known.get(atom.key) or known.get(atom.key.removesuffix(f":{rank}"))
    if depth and kind in (TEXT, "Add", "Div"):
        for number, part in enumerate(parts):
            yield "/" if number and kind == "Div" else ""
            yield from _spelled(part, known, rank, depth - 1)
    elif depth and thing is not None and thing.call is not None and _is_joined(thing.call):
        for number, value in enumerate(_parts(thing.call)):
            yield "/" if number else ""
            yield from _of_value(value, known, rank, depth)
    elif depth and thing is not None and thing.call is not None and _is_form(thing.call):
        yield from _filled(thing.call, known, rank, depth)
    elif depth and thing is not None and thing.call is not None and _is_parent(thing.call):
        yield _parent(_of_value(thing.call.args[0], known, rank, depth))
    elif depth and atom.key.endswith(".parent") and (own := _owner(atom, known)) is not None:
        yield _parent(_spelled(own, known, rank, depth - 1))
    else:
        yield f"<{atom.key.replace('/', '|')}>"  # what is not known is no folder


def _of_value(
    value: RankValue, known: Mapping[str, RankThing], rank: int, depth: int
) -> Iterator[str]:
    inner = {f"{one.name}@{id(one)}": one for one in value.sources()}
    yield from _spelled(value.atoms[rank], {**known, **inner}, rank, depth - 1)


def _owner(atom: Symbol, known: Mapping[str, RankThing]) -> Symbol | None:
    """``path`` of ``path.parent``."""
    key = atom.key.removesuffix(".parent")
    return Symbol(key) if key in known else None


def _is_parent(call: RankCall) -> bool:
    return call.name == "os.path.dirname" and len(call.args) == 1


def _parent(parts: Iterator[str]) -> str:
    return "".join(parts).rpartition("/")[0]


def _is_form(call: RankCall) -> bool:
    """``"{}/{}.npy".format(folder, rank)``"""
    form = call.receiver.constant if call.receiver is not None else None
    holes = len(_HOLE.findall(form)) if isinstance(form, str) else -1
    return call.method == "format" and not call.star and holes == len(call.args)


def _filled(call: RankCall, known: Mapping[str, RankThing], rank: int, depth: int) -> Iterator[str]:
    form = call.receiver.constant if call.receiver is not None else ""
    for text, value in zip_longest(_HOLE.split(str(form)), call.args):
        yield text
        if value is not None:
            yield from _of_value(value, known, rank, depth)


def _is_joined(call: RankCall) -> bool:
    """Whether a call gives a path of its arguments."""
    if call.name in _ALIKE:
        return len(call.args) == 1
    same = call.method in _SAME and call.name.startswith("pathlib.")
    return not call.star and (same or call.name in _JOINS or call.method == "joinpath")


def _parts(call: RankCall) -> tuple[RankValue, ...]:
    own = (call.receiver,) if call.receiver is not None and call.name not in _JOINS else ()
    return (*own, *call.args)
