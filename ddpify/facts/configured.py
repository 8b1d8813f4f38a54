"""Programs whose Trainer is made by a configuration: hydra's, or that of LightningCLI.

What is trained with it is found by the reading as several ranks; here is only whose program it is,
and which files the configurations name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.configs import programs
from ddpify.configs.trees import ConfigTree
from ddpify.facts.events import Call
from ddpify.facts.frameworks import FRAMEWORKS
from ddpify.facts.machine import ProgramReader
from ddpify.facts.roles import calls_of
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.source import Site

CALLS: Final = ("hydra.utils.instantiate", "hydra.utils.call")
COMMANDLINE: Final = "LightningCLI"
TRAINER: Final = "Lightning"


def evidence(m: ProgramReader) -> list[tuple[Site, str]]:
    """The calls that make a Trainer of a configuration."""
    calls = calls_of(m)
    found = [(c.site, TRAINER) for c in calls if c.name in CALLS and _makes_trainer(m, c)]
    return [*found, *((c.site, COMMANDLINE) for c in calls if _is_commandline(c))]


def load(m: ProgramReader) -> None:
    """Read the files of the classes that configurations name."""
    assert m.entry is not None
    frame = Frame(m.entry, None, m.entry.globals)
    site = m.site(frame, m.entry.tree.body[0])
    for target in dict.fromkeys(name for tree in trees(m) for name in tree.targets()):
        found = programs.located(target, m.project.find)
        if found is not None:
            m.import_module(frame, found[0], site)


def trees(m: ProgramReader) -> Iterator[ConfigTree]:
    """The configurations of the program."""
    for module in tuple(m.modules.values()):
        source = module.source
        yield from programs.trees_of(source.file, source.text, m.project.root)


def section(node: ast.expr | None) -> tuple[str, ...]:
    """``("trainer",)`` of ``cfg.trainer``, ``cfg["trainer"]``, ``self.cfg.get("trainer")``."""
    names: list[str] = []
    while node is not None and not isinstance(node, ast.Name):
        name, node = _step(node)
        names += [name] if name else []
    return tuple(reversed(names))


def _step(node: ast.expr) -> tuple[str, ast.expr | None]:
    """The last name of an expression, and what it is taken from."""
    if isinstance(node, ast.Attribute):
        return node.attr, node.value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value), node.value
    asked = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if asked and node.func.attr == "get" and node.args:
        key = node.args[0]
        return (str(key.value) if isinstance(key, ast.Constant) else ""), node.func.value
    return "", None


def placed(tree: ConfigTree, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a section that makes a Trainer, whatever holds the configuration."""
    for number in range(len(path)):
        made = tree.made(path[number:])
        if made and all(FRAMEWORKS.get(one.target) == TRAINER for one in made):
            return path[number:]
    return ()


def _makes_trainer(m: ProgramReader, call: Call) -> bool:
    node = m.trees[call.site.path].expression(call.site)
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return any(placed(tree, section(given)) for tree in trees(m))


def _is_commandline(call: Call) -> bool:
    """``LightningCLI(…)`` of a class of the project."""
    made = [t.ref for t in call.result.things if isinstance(t.ref, ClassInfo)]
    named = any(t.born == call.site for t in call.result.things)
    bases = [name for info in made for name in info.external_bases()]
    return named and any(FRAMEWORKS.get(name) == COMMANDLINE for name in bases)
