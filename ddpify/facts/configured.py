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
from ddpify.facts.model import Facts
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


def unfollowed(facts: Facts) -> str:
    """Why a program whose objects hydra makes is not followed; empty where it makes none."""
    calls = facts.named(*CALLS)
    for tree in facts.trees.values() if calls else ():
        for node in tree.nodes():
            place, file = programs.decorator_of(node), tree.source.file
            if place is not None and programs.folder_of(node, file, tree.module) is None:
                said = "the folder of hydra's configurations has to be written out here"
                return f'{tree.site(place)}: {said}: config_path="…"'
    for call in calls:
        return (
            f"{call.site}: what hydra makes here is not followed: the section has to be one of the"
            ' files below `@hydra.main(config_path="…")`, taken from what `main` is given'
        )
    return ""


def _makes_trainer(m: ProgramReader, call: Call) -> bool:
    node = m.trees[call.site.path].expression(call.site)
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return any(programs.trainer_in(tree, programs.section(given)) for tree in trees(m))


def _is_commandline(call: Call) -> bool:
    """``LightningCLI(…)`` of a class of the project."""
    made = [t.ref for t in call.result.things if isinstance(t.ref, ClassInfo)]
    named = any(t.born == call.site for t in call.result.things)
    bases = [name for info in made for name in info.external_bases()]
    return named and any(FRAMEWORKS.get(name) == COMMANDLINE for name in bases)
