"""What happens while ranks run, besides calls: stores, reads, exits, and where that is."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpify.ranks.attempts import Attempt
from ddpify.ranks.model import RankCall, RankGuard, RankLoop, RankValue
from ddpify.ranks.modules import FunctionDefinition, Module
from ddpify.ranks.origins import Origin
from ddpify.source import Site


@dataclass(eq=False)
class Store:
    """An assignment to an attribute (``key`` is its name) or an element (``key`` if a text)."""

    order: int
    base: RankValue
    key: str
    value: RankValue
    node: ast.AST
    module: Module
    ranks: int
    guards: tuple[RankGuard, ...]
    loops: tuple[RankLoop, ...]
    stack: tuple[RankCall, ...]
    function: FunctionDefinition | None
    element: bool = False

    @property
    def site(self) -> Site:
        """Where the assignment stands."""
        return self.module.site(self.node)


@dataclass(eq=False)
class Read:
    """An attribute of a wrapped model (DDP, FSDP) is read, be it to call it, or an element."""

    order: int
    base: RankValue
    attribute: str  # "__getitem__" for an element
    node: ast.Attribute | ast.Subscript
    module: Module
    ranks: int
    function: FunctionDefinition | None
    guards: tuple[RankGuard, ...] = ()
    loops: tuple[RankLoop, ...] = ()
    stack: tuple[RankCall, ...] = ()

    @property
    def site(self) -> Site:
        """Where the attribute is read."""
        return self.module.site(self.node)


@dataclass(frozen=True, eq=False)
class Touch:
    """The numbers of a tensor are read, or changed, after an asynchronous call got it.

    ``key`` says which one, as ``inflight.key_of``.
    """

    order: int
    key: str
    node: ast.AST
    module: Module
    ranks: int
    here: Here
    changes: bool

    @property
    def site(self) -> Site:
        """Where that is done."""
        return self.module.site(self.node)


@dataclass(eq=False)
class Lacking:
    """Something is used that is None on one rank, which comes here as the other does.

    ``unset``: or it is a name that this rank has not set, for this reason.
    """

    order: int
    value: RankValue
    rank: int
    node: ast.AST
    module: Module
    function: FunctionDefinition | None
    unset: Origin | None = None

    @property
    def site(self) -> Site:
        """Where it is used."""
        return self.module.site(self.node)


@dataclass(eq=False)
class Exit:
    """A ``return``, ``break``, ``continue``, ``raise`` or a call that ends the process."""

    order: int
    kind: str
    node: ast.AST
    module: Module
    ranks: int
    guards: tuple[RankGuard, ...]
    loops: tuple[RankLoop, ...]
    function: FunctionDefinition | None

    @property
    def site(self) -> Site:
        """The place of the loop."""
        return self.module.site(self.node)

    def ends(self, loop: RankLoop) -> bool:
        """Whether it may end a loop: a ``return`` none around the call of its function."""
        inner = self.function.node if self.kind == "return" and self.function else None
        return loop in self.loops and (
            inner is None or any(node is loop.node for node in ast.walk(inner))
        )


@dataclass(frozen=True)
class Here:
    """The circumstances of what happens now: those that every record of it keeps."""

    guards: tuple[RankGuard, ...] = ()
    loops: tuple[RankLoop, ...] = ()
    stack: tuple[RankCall, ...] = ()
    contexts: tuple[RankValue, ...] = ()
    swallows: tuple[Attempt, ...] = ()
    grad: bool = True

    def under(self, guard: RankGuard) -> Here:
        """The same, where one more condition holds."""
        guards = (*self.guards, guard)
        return Here(guards, self.loops, self.stack, self.contexts, self.swallows, self.grad)
