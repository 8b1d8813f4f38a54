"""Trainers that a configuration makes: where they are made, and the sections that say how.

Of hydra it is the section that ``instantiate(cfg.trainer)`` is given, of LightningCLI ``trainer:``,
in every file that has it, whichever the program is started with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from ddpify.configs import programs
from ddpify.configs.nodes import ConfigNode
from ddpify.configs.trees import ConfigTree, of_commandline
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree, last_name

COMMANDLINE: Final = "LightningCLI"  # as they are called in the facts' evidence
_HYDRA: Final = "Lightning"
_ARGUMENTS: Final = ("args", "trainer_class")
_METHODS: Final = frozenset(
    "fit validate test predict subcommands instantiate_classes instantiate_trainer setup_parser"
    " parse_arguments init_parser _run_subcommand".split()
)
_OWN: Final = (
    "`{}` is LightningCLI's own, which makes and starts what it reads: what this one does instead"
    " is not followed"
)
_FOLDERS: Final = (
    "hydra also looks for configurations where `searchpath` says ({}): what they name is not read"
)


@dataclass(frozen=True, eq=False)
class ConfiguredTrainer:
    """A call that makes a Trainer, and the path of its sections."""

    tree: Tree
    call: ast.Call
    path: tuple[str, ...]
    config: ConfigTree
    commandline: bool = False

    @cached_property
    def sections(self) -> tuple[ConfigNode, ...]:
        """What the files write at this path."""
        return self.config.at(self.path)

    def texts(self, name: str) -> list[str]:
        """What the sections write for an argument."""
        found = (one.entries[name] for one in self.sections if name in one.entries)
        return [one.text or "" for one in found]


@lru_cache(maxsize=8)  # several rules ask for them
def configured(facts: Facts) -> tuple[ConfiguredTrainer, ...]:
    """The calls of a program that make Trainers of configurations."""
    return tuple(_configured(facts))


def _configured(facts: Facts) -> Iterator[ConfiguredTrainer]:
    root = Path(facts.root)
    for site, name in dict.fromkeys(facts.evidence):
        tree = facts.tree(site)
        node = tree.expression(site)
        if not isinstance(node, ast.Call):
            continue
        if name == COMMANDLINE:
            yield ConfiguredTrainer(tree, node, ("trainer",), of_commandline(root), True)
        elif name == _HYDRA and node.args:
            for config in _trees(facts, root):
                path = programs.trainer_in(config, programs.section(node.args[0]))
                if path:
                    yield ConfiguredTrainer(tree, node, path, config)


def faults(facts: Facts) -> Iterator[tuple[Tree, ast.AST, str]]:
    """What a command line's class, or its call, does that is not read, and why; and which folders
    of configurations are not."""
    for one in configured(facts):
        if not one.commandline:
            for node in one.config.elsewhere:
                yield one.tree, one.call, _FOLDERS.format(node.site)
            continue
        for argument in one.call.keywords:
            if argument.arg in _ARGUMENTS:
                yield one.tree, argument, f"LightningCLI with `{argument.arg}` is not followed"
        for tree, cls in _family(facts, one):
            for method in cls.body:
                if isinstance(method, ast.FunctionDef) and method.name in _METHODS:
                    yield tree, method, _OWN.format(method.name)


def _family(facts: Facts, trainer: ConfiguredTrainer) -> list[tuple[Tree, ast.ClassDef]]:
    """The class of the project that the command line is, and those it inherits from."""
    wanted, found = [last_name(trainer.call.func)], []
    for name in wanted:
        for tree, cls in _classes(facts, name):
            found.append((tree, cls))
            wanted += [base for base in map(last_name, cls.bases) if base not in wanted]
    return found


def _classes(facts: Facts, name: str) -> list[tuple[Tree, ast.ClassDef]]:
    return [
        (tree, node)
        for tree in facts.trees.values()
        for node in tree.nodes()
        if isinstance(node, ast.ClassDef) and node.name == name
    ]


def class_of(facts: Facts, trainer: ConfiguredTrainer) -> tuple[Tree, ast.ClassDef] | None:
    """The class of the project that the command line is, where it is one."""
    found = _classes(facts, last_name(trainer.call.func))
    return found[0] if len(found) == 1 else None


def _trees(facts: Facts, root: Path) -> Iterator[ConfigTree]:
    for tree in facts.trees.values():
        yield from programs.trees_of(tree.source.file, tree.source.text, root)
