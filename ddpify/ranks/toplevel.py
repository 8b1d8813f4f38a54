"""Names that more than one assignment of a module or a class body makes: these are run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpify.python.toplevel import Statements
from ddpify.ranks.aliases import is_container
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankValue
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import symbol

MAX_REGISTERED = 40  # of definitions that enter themselves into a table by a decorator


def found_in(m: RankMachine, frame: RankFrame, name: str, held: Statements) -> RankValue:
    """What a name is bound to after its statements have run."""
    m.apart(frame, held.binding)
    value = frame.names.get(name)
    if value is not None and _collects(value):
        m.apart(frame, held.changing)
    return frame.names.get(name) or symbol(f"{frame.module.name}.{name}")


def _collects(value: RankValue) -> bool:
    """Whether a global is a list, a dict, or an object that may keep what it is given."""
    return is_container(value) or any(t.kind == "instance" for t in value.things)


def register(m: RankMachine, module: Module, name: str, value: RankValue) -> None:
    """Make the definitions that a decorator enters into this table: ``@register("digits")``."""
    if not _collects(value) or m.runs(module):
        return
    wanted = _decorators(module, name, value)
    todo: list[tuple[Module, str]] = []
    files = {file for one in wanted for file in m.modules.decorated.get(one.strip("."), ())}
    for file in sorted(files) if len(files) <= MAX_REGISTERED else ():
        other = m.modules.load(file)
        if other is not None and not m.runs(other):
            todo += [(other, one) for one in _decorated(other, wanted)]
        if len(todo) > MAX_REGISTERED:
            return
    for other, one in todo:
        m.global_name(other, one)


def _decorators(module: Module, name: str, value: RankValue) -> set[str]:
    """How what enters something into a table is written: a function that says its name, or a
    method of the table itself."""
    if any(t.kind == "instance" for t in value.things):
        return {f"{name}."}
    word = re.compile(rf"\b{re.escape(name)}\b")
    return {info.name for info in module.functions.values() if word.search(info.text)}


def _decorated(module: Module, wanted: set[str]) -> Iterator[str]:
    held: list[FunctionDefinition | ClassDefinition] = [
        *module.functions.values(),
        *module.classes.values(),
    ]
    for info in held:
        for decorator in getattr(info.node, "decorator_list", ()):
            func = decorator.func if isinstance(decorator, ast.Call) else decorator
            written = ast.unparse(func)
            if any(_says(written, one) for one in wanted):
                yield info.name


def _says(written: str, wanted: str) -> bool:
    if wanted.endswith("."):
        return written.startswith(wanted) or f".{wanted}" in written
    return written == wanted or written.endswith(f".{wanted}")
