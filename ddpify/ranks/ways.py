"""How a program comes to a place in it: the calls from the script on, for people to follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks.events import Read, Store
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.source import Site

_MOST = 3  # calls of one way that are shown: the first, and the last that lead to the place
_Record = tuple[Site, FunctionDefinition | None, tuple[RankCall, ...]]


def way_to(run: Run, site: Site) -> tuple[tuple[Site, str], ...]:
    """The calls that lead to a place, outermost first; nothing in the script that is started.

    Of a part of a program that no script is seen to enter, it begins at that function.
    """
    return _way(run, site, *_nearest(run, site))


def way_of(run: Run, call: RankCall) -> tuple[tuple[Site, str], ...]:
    """The calls that lead to this one, where others may lead to its place as well."""
    return _way(run, call.site, call.stack, call.function)


def _way(
    run: Run, site: Site, stack: tuple[RankCall, ...], function: FunctionDefinition | None
) -> tuple[tuple[Site, str], ...]:
    if run.script and site.path == run.start:
        return ()
    steps = list(zip(stack, [*(call.function for call in stack[1:]), function], strict=False))
    while len(steps) > 1 and run.script and steps[1][0].module.path == run.start:
        del steps[0]  # calls within the script do not help
    frames = dict(_frame(call, into) for call, into in steps if into is not None)
    begun = () if run.script or _is_hook(stack) else _beginning(run)
    told = ((at, text) for at, text in frames.items() if not site.within(at))
    return _shortened([*begun, *told])


def _nearest(run: Run, site: Site) -> tuple[tuple[RankCall, ...], FunctionDefinition | None]:
    """The calls that led to what happens at a place, or else into the function around it."""
    around: tuple[tuple[RankCall, ...], FunctionDefinition | None] = ((), None)
    for at, function, stack in run.once(_records).get(site.path, ()):
        if at.within(site) or site.within(at):
            return stack, function
        if function is not None and site.within(function.site):
            inner = around[1]
            if inner is None or (function is not inner and function.site.within(inner.site)):
                around = (stack, function)
    return around


def _records(run: Run) -> dict[str, list[_Record]]:
    """What happens in each file, with the calls that led there."""
    found: dict[str, list[_Record]] = {}
    happened: list[RankCall | Store | Read] = [*run.calls, *run.stores, *run.reads]
    for one in happened:
        found.setdefault(one.module.path, []).append((one.site, one.function, one.stack))
    return found


def _frame(call: RankCall, into: FunctionDefinition) -> tuple[Site, str]:
    owner = into.owner.name if into.owner is not None else ""
    if into.name in ("__init__", "__new__", "__post_init__"):
        return call.site, f"makes {owner}"
    name = f"{owner}.{into.name}" if owner else into.name
    if name == "<lambda>":
        return call.site, "calls a lambda"
    if call.name.startswith("lightning."):
        made_up = isinstance(call.node.func, ast.Constant)
        return (into.site if made_up else call.site), f"Lightning calls {name}()"
    return call.site, f"calls {name}()"


def _is_hook(stack: tuple[RankCall, ...]) -> bool:
    return bool(stack) and stack[0].name.startswith("lightning.")


def _beginning(run: Run) -> Iterator[tuple[Site, str]]:
    """The function that was read for itself."""
    path, _, line = run.start.rpartition(":")
    module = run.modules.get(path)
    for one in module.all_functions() if module is not None else ():
        if one.node.lineno == int(line):
            yield one.site, f"read from here: no script was seen to call {one.name}()"


def _shortened(frames: list[tuple[Site, str]]) -> tuple[tuple[Site, str], ...]:
    """A long way without its middle."""
    if len(frames) <= _MOST:
        return tuple(frames)
    (site, text), *rest = frames
    return ((site, f"{text} …"), *rest[1 - _MOST :])
