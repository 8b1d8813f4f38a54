"""Trainers that a configuration makes: where they are made, and the sections that say how.

Of hydra it is the section that ``instantiate(cfg.trainer)`` is given, of LightningCLI ``trainer:``,
in every file that has it, whichever the program is started with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ddpify.configs import programs
from ddpify.configs.nodes import ConfigNode
from ddpify.configs.trees import ConfigTree, of_commandline
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree

COMMANDLINE: Final = "LightningCLI"  # as they are called in the facts' evidence
_HYDRA: Final = "Lightning"


@dataclass(frozen=True, eq=False)
class ConfiguredTrainer:
    """A call that makes a Trainer, the path of its sections, and these."""

    tree: Tree
    call: ast.Call
    path: tuple[str, ...]
    sections: tuple[ConfigNode, ...]
    commandline: bool = False

    def texts(self, name: str) -> list[str]:
        """What the sections write for an argument."""
        found = (one.entries[name] for one in self.sections if name in one.entries)
        return [one.text or "" for one in found]


def configured(facts: Facts) -> Iterator[ConfiguredTrainer]:
    """The calls of a program that make Trainers of configurations."""
    root = Path(facts.root)
    for site, name in dict.fromkeys(facts.evidence):
        tree = facts.tree(site)
        node = tree.expression(site)
        if not isinstance(node, ast.Call):
            continue
        if name == COMMANDLINE:
            path: tuple[str, ...] = ("trainer",)
            yield ConfiguredTrainer(tree, node, path, of_commandline(root).at(path), True)
        elif name == _HYDRA and node.args:
            for config in _trees(facts, root):
                path = programs.trainer_in(config, programs.section(node.args[0]))
                if path:
                    yield ConfiguredTrainer(tree, node, path, config.at(path))


def _trees(facts: Facts, root: Path) -> Iterator[ConfigTree]:
    for tree in facts.trees.values():
        yield from programs.trees_of(tree.source.file, tree.source.text, root)
