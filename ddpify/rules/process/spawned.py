"""Functions that are spawned with other arguments than they take."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Severity
from ddpify.rules.shared.parents import SPAWN
from ddpify.rules.shared.syntax import resolved, scope_nodes
from ddpify.site import Site

_DEVICES: Final = "torch.cuda.device_count"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_OPTIONS: Final = "argparse.ArgumentParser.parse_args"
_CHECKS: Final = re.compile(
    r"assert\b.*(?:device_count|gpu|world)|(?:device_count\(\)|gpus?) *[<>!=]=?"
)


@dataclass(frozen=True)
class Misfit:
    """A spawn, what is wrong with its arguments, and the function that gets them."""

    call: RankCall
    what: str
    function: Site


def misfits(run: Run) -> Iterator[Misfit]:
    """The spawns after which each process ends with a TypeError."""
    for call in run.named(SPAWN):
        target, given = call.arg(0, "fn"), call.arg(1, "args")
        taken = _taken(target.things[0]) if target is not None and len(target.things) == 1 else None
        number = _number(call, given)
        if taken is None or number is None or call.star:
            continue
        least, most, function = taken
        if not least <= number + 1 <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            what = f"takes {wanted} arguments and gets {number + 1}, its process's number first"
            yield Misfit(call, what, function)


def local_functions(run: Run) -> Iterator[Misfit]:
    """The spawns of a function that has no place in its module: a lambda, or one that another
    function defines. Each process is told the function by its name (pickle)."""
    for call in run.named(SPAWN):
        target = call.arg(0, "fn")
        thing = target.things[0] if target is not None and len(target.things) == 1 else None
        info = thing.info if thing is not None and thing.kind == "function" else None
        if info is not None and info.owner is None and _is_local(info):
            yield Misfit(call, info.name, info.site)


def _is_local(info: FunctionDefinition) -> bool:
    """Whether a function is a lambda, or stands within another function."""
    if isinstance(info.node, ast.Lambda):
        return True
    walked = (node for node in info.module.nodes if isinstance(node, _FUNCTIONS))
    return any(info.node in ast.walk(node) for node in walked if node is not info.node)


def counted_apart(run: Run) -> Iterator[tuple[RankCall, Severity, str]]:
    """The spawns of another number of processes than the group has that each of them joins."""
    for spawn in run.named(SPAWN):
        number = spawn.arg(2, "nprocs")
        for session in run.openings:
            size, rank = session.arg(3, "world_size"), session.arg(4, "rank")
            inside = any(one.node is spawn.node for one in session.stack)
            if number is None or size is None or rank is None or not inside:
                continue
            known = type(number.constant) is type(size.constant) is int
            if known and number.constant != size.constant and _is_its_number(session, spawn):
                what = f"{number.constant} processes join a group of {size.constant}"
                yield spawn, Severity.ERROR, what
            elif _by_devices(number) and _by_options(size) and not _is_checked(spawn):
                what = "a process per GPU joins a group as large as an option says"
                yield spawn, Severity.WARNING, what


def _is_its_number(session: RankCall, spawn: RankCall) -> bool:
    """Whether each process joins, under the number that the spawn gave it: ``node * 2 + number``
    says that there may be other nodes."""
    call, node = session, session.node_of(4, "rank")
    while isinstance(node, ast.Name) and call.stack:
        made = resolved(call, node)
        if _is_asked_for(node.id, call):
            return False  # some of them may be of another kind, and join nothing
        if call.stack[-1].node is spawn.node:
            function = call.function
            names = function.parameters if function is not None else ()
            own = function is not None and function.owner is not None
            first = names[own : own + 1] == (node.id,)
            return first and not any(one is call for one, _ in made)
        if len(made) != 1 or made[0][0] is call:
            return False
        call, node = made[0]
    return False


def _is_asked_for(name: str, call: RankCall) -> bool:
    """Whether a condition above or around a call is about what this name stands for."""
    tests = (n.test for n in scope_nodes(call) if isinstance(n, (ast.If, ast.IfExp)))
    above = (test for test in tests if test.lineno <= call.node.lineno)
    return any(getattr(one, "id", "") == name for test in above for one in ast.walk(test))


def _by_options(value: RankValue) -> bool:
    """Whether a number is what a command line says, and has nothing to do with that of the GPUs."""
    return not _by_devices(value) and any(t.name.startswith(_OPTIONS) for t in value.sources())


def _by_devices(value: RankValue) -> bool:
    """Whether a number is that of the GPUs, or is computed from it."""
    return any(thing.name == _DEVICES for thing in value.sources())


def _is_checked(spawn: RankCall) -> bool:
    """Whether the file that starts the processes compares numbers of GPUs itself."""
    return _CHECKS.search(spawn.module.source.text) is not None


def _taken(thing: RankThing) -> tuple[int, int, Site] | None:
    """How many arguments a function takes by position, at least and at most."""
    info = thing.info if thing.kind == "function" else None
    spec = info.node.args if info is not None else None
    if info is None or spec is None or getattr(info.node, "decorator_list", False):
        return None
    bound = thing.receiver is not None
    if bound is not (info.owner is not None):
        return None
    if spec.vararg is not None or any(default is None for default in spec.kw_defaults):
        return None
    most = len(info.parameters) - bound
    return most - len(spec.defaults), most, info.module.site(info.node)


def _number(call: RankCall, given: RankValue | None) -> int | None:
    """How many arguments the spawn gives, beside the process's number."""
    node = call.node_of(1, "args")
    if node is None or given is None:
        return 0
    plain = isinstance(node, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in node.elts)
    return len(node.elts) if plain and isinstance(node, ast.Tuple) else None
