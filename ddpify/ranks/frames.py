"""One call of a function, or the top level of a module, while it runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from ddpify.ranks.model import RankGuard, RankValue
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, FunctionNode, Module
from ddpify.ranks.origins import Origin


@dataclass(eq=False)
class RankFrame:
    """One call of a function, or the top level of a module.

    ``blocks``: itself and the loops that are being read, see `leaving`.
    ``partial``: names that one rank alone has set: what they are, the rank without, and the reason.
    """

    module: Module
    function: FunctionDefinition | None
    names: dict[str, RankValue]
    outer: RankFrame | None = None
    return_ranks: list[tuple[int, RankValue, tuple[RankGuard, ...]]] = field(default_factory=list)
    yielded: list[RankValue] = field(default_factory=list)
    delegated: RankValue | None = None  # what `yield from` goes over, if its elements are not known
    on_yield: Any = None
    cls: ClassDefinition | None = None
    body: ClassDefinition | None = None  # the class whose body this is
    outward: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    blocks: list[Any] = field(default_factory=list)
    partial: dict[str, tuple[RankValue, int, Origin]] = field(default_factory=dict)


def node_of_function(node: FunctionNode) -> list[ast.stmt]:
    """The statements of a function; those of a lambda return its expression."""
    if isinstance(node, ast.Lambda):
        made = ast.Return(value=node.body)
        return [ast.copy_location(made, node.body)]
    return node.body
