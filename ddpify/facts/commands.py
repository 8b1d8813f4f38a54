"""Programs that a library starts: ``fire.Fire(train)``, ``@click.command()``, ``@hydra.main()``.

What it calls is entered as the library would enter it, with options whose values nobody knows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Thing, Value, one

RUNNERS: Final = frozenset(
    """fire.Fire typer.run absl.app.run tyro.cli plac.call defopt.run clize.run jsonargparse.CLI
    jsonargparse.auto_cli""".split()
)
_GROUPS: Final = ("click.group", "rich_click.group")
_COMMANDS: Final = (*_GROUPS, "click.command", "rich_click.command", "hydra.main")


def run(m: Machine, f: Frame, call: Call) -> Value:
    """``fire.Fire(train)``, ``fire.Fire({"train": train})``; without a function all of the file."""
    given = [t for value in call.args[:1] for t in value.things]
    given += [t for each in given for value in (each.keys or {}).values() for t in value.things]
    for info in _functions(given) if call.args else _uncalled(f):
        _start(m, f, info, call)
    return NOTHING


def run_group(m: Machine, f: Frame, info: FunctionInfo, call: Call) -> None:
    """The commands of a group that is called: any of them may be meant."""
    if not info.decorated_with(*_GROUPS):
        return
    starts = tuple(f"@{info.name}.{kind}" for kind in ("command", "group"))
    every = [t for v in info.module.globals.values() for t in v.things]
    for other in _functions(every):
        written = [f"@{ast.unparse(each)}" for each in _decorators(other)]
        if other is not info and any(text.startswith(starts) for text in written):
            _start(m, f, other, call)


def option(info: FunctionInfo, name: str) -> Value | None:
    """What a parameter is that no call gives, where a library gives it."""
    if not info.decorated_with(*_COMMANDS):
        return None
    config = info.decorated_with("hydra.main")
    return one(Thing(Kind.ARGUMENT, info.site, "" if config else name))


def _start(m: Machine, f: Frame, info: FunctionInfo, call: Call) -> None:
    spec = info.node.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    given = {name: one(Thing(Kind.ARGUMENT, info.site, name)) for name in names}
    m.enter(f, info, (), given, call.site)


def _functions(things: Iterable[Thing]) -> Iterator[FunctionInfo]:
    for thing in things:
        if isinstance(thing.ref, FunctionInfo) and not isinstance(thing.ref.node, ast.Lambda):
            yield thing.ref


def _decorators(info: FunctionInfo) -> list[ast.expr]:
    return [] if isinstance(info.node, ast.Lambda) else info.node.decorator_list


def _uncalled(f: Frame) -> list[FunctionInfo]:
    """The functions of a file that it does not call itself: those are helpers."""
    nodes = [n.func for n in ast.walk(f.module.tree) if isinstance(n, ast.Call)]
    called = {n.id for n in nodes if isinstance(n, ast.Name)}
    own = _functions(t for v in f.module.globals.values() for t in v.things)
    return [i for i in own if i.module is f.module and i.name not in called and i.name[0] != "_"]
