"""Layers that a model leaves out at random: its forward may use them or not, so that is read."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpify.facts.scopes import ClassInfo, FunctionInfo, ModuleInfo
from ddpify.facts.values import NOTHING, Kind
from ddpify.python.choices import Names, choices, spelled


def is_left_to_chance(info: ClassInfo, layers: frozenset[str]) -> bool:
    """Whether a draw decides which of a module's ``layers`` its forward uses."""
    names = _FactNames(info, info.module)
    found = names.function(ast.parse("self.forward", mode="eval").body)
    return found is not None and any(choices(*found, layers))


@dataclass(frozen=True)
class _FactNames:
    """The names of a class, if it is in one, and of its module."""

    owner: ClassInfo | None
    module: ModuleInfo

    def library(self, node: ast.expr) -> str:
        """The name that a library has for it."""
        root, _, rest = ast.unparse(node).partition(".")
        found = self.module.globals.get(root, NOTHING).of(Kind.EXTERNAL)
        plain = len(found) == 1 and "(" not in rest
        return ".".join((found[0].name, rest)).rstrip(".") if plain else ""

    def function(self, node: ast.expr) -> tuple[ast.FunctionDef, Names] | None:
        """The function of the project."""
        name = spelled(node)
        method = self.owner.lookup(name) if self.owner is not None else None
        value = self.module.globals.get(node.id) if isinstance(node, ast.Name) else method
        for thing in value.things if value is not None else ():
            if isinstance(thing.ref, FunctionInfo) and isinstance(thing.ref.node, ast.FunctionDef):
                return thing.ref.node, _FactNames(self.owner or thing.ref.owner, thing.ref.module)
        return None
