"""What the reader's parts may ask of the reader: thus none of them has to import another."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ddpify.ranks.aliases import Aliases, Changes
from ddpify.ranks.events import Here
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.imports import Modules
from ddpify.ranks.interest import Interest
from ddpify.ranks.model import RankCall, RankGuard, RankLoop, RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.origins import Origin
from ddpify.ranks.run import Run
from ddpify.ranks.settled import Settled
from ddpify.ranks.trace import Item
from ddpify.source import Site


class RankMachine(Protocol):
    """One run from one start, as statements, expressions, calls and libraries see it."""

    # -- the project, and what is kept of the run
    modules: Modules
    interest: Interest
    run: Run
    # -- who is here, under which circumstances, and what they have done
    live: int
    here: Here
    unread: bool
    opened: bool  # a process group
    asked: bool
    items: list[Item]
    order: int
    spent: int
    streams: dict[str, RankValue]
    aliases: Aliases
    journal: list[tuple[dict[str, RankValue], str, Any]]
    marks: bool
    flying: set[str]
    # -- what was made, entered and looked up so far
    entering: list[FunctionDefinition]
    entered: set[FunctionDefinition]
    remembered: dict[tuple[FunctionDefinition, RankThing | None], int]
    made: set[tuple[ast.If, RankThing]]
    choices: dict[str, tuple[str, RankValue, RankValue]]  # by what was made of two
    deciding: set[str]
    settled: Settled
    reread: list[ast.AST]
    closures: dict[RankThing, RankFrame | None]
    classes: dict[ClassDefinition, RankThing]
    finished: dict[ClassDefinition, RankValue]
    namespaces: dict[Module, RankThing]
    submodules: dict[tuple[Module, str, int], RankValue | None]
    resolving: set[tuple[Module | ClassDefinition, str]]
    externals: dict[str, RankValue]
    patched: set[str]
    shared: dict[str, dict[str, RankValue]]
    words: set[str]

    # -- running
    def evaluate(self, f: RankFrame, node: ast.expr) -> RankValue: ...
    def execute(self, f: RankFrame, body: list[ast.stmt]) -> None: ...
    def enter(
        self,
        f: RankFrame | None,
        thing: RankThing,
        args: tuple[RankValue, ...],
        kwargs: dict[str, RankValue],
        one: RankCall | None,
        on_yield: Callable[[RankValue], None] | None = None,
    ) -> RankValue: ...
    def apart(self, f: RankFrame, body: list[ast.stmt]) -> None: ...
    def runs(self, module: Module) -> bool: ...
    def call_value(self, f: RankFrame, callee: RankValue, given: Given) -> RankValue: ...
    def apply(
        self, f: RankFrame, callee: RankValue, node: ast.AST, args: tuple[RankValue, ...] = ()
    ) -> RankValue: ...
    def call_method(
        self,
        f: RankFrame,
        base: RankValue,
        name: str,
        node: ast.AST,
        args: tuple[RankValue, ...] = (),
    ) -> RankValue | None: ...
    def spend(self, f: RankFrame, node: ast.stmt) -> None: ...

    # -- state
    def tick(self) -> int: ...
    def write(self, space: dict[str, RankValue], key: str, value: RankValue) -> None: ...
    def hold(self, space: dict[str, RankValue], key: str, value: RankValue) -> None: ...
    def bind(self, f: RankFrame, name: str, value: RankValue) -> None: ...
    def change(self, f: RankFrame, node: ast.expr, old: RankValue, new: RankValue) -> None: ...
    def set_property(
        self, f: RankFrame, base: RankValue, name: str, node: ast.AST, value: RankValue
    ) -> bool: ...
    def take_back(self, mark: int) -> Changes: ...
    def since(self, mark: int, but: dict[str, RankValue] | None) -> Changes: ...
    def before(self, mark: int) -> dict[tuple[int, str], RankValue | None]: ...
    def forget(self, mark: int, space: dict[str, RankValue]) -> None: ...
    def tried(self, run: Callable[[], None]) -> Changes: ...
    def mark(self) -> tuple[int, ...]: ...
    def back_to(self, mark: tuple[int, ...]) -> None: ...
    def note_reading(
        self, info: FunctionDefinition, statements: int, items: list[Item]
    ) -> None: ...
    def read_enough(self, info: FunctionDefinition) -> list[Item] | None: ...

    # -- control
    def branch(
        self, f: RankFrame, test: RankValue, node: ast.expr, arms: tuple[Any, Any]
    ) -> None: ...
    def looping(
        self, loop: RankLoop, key: str, local: RankGuard | None = None
    ) -> AbstractContextManager[None]: ...
    def end(self, f: RankFrame, kind: str, node: ast.AST) -> None: ...
    def inline(self, items: list[Item]) -> None: ...
    def may(self, test: RankValue, live: int, holds: bool) -> int: ...
    def is_local(self, test: RankValue, live: int) -> bool: ...
    def own(self, origins: frozenset[Origin]) -> bool: ...

    # -- records
    def event(self, op: str, call: RankCall | None, node: ast.AST, f: RankFrame) -> None: ...
    def store(
        self, f: RankFrame, base: RankValue, key: str, value: RankValue, node: ast.AST, el: bool
    ) -> None: ...

    # -- parts of values
    def attribute(self, f: RankFrame, base: RankValue, name: str, node: ast.expr) -> RankValue: ...
    def item(
        self, f: RankFrame, base: RankValue, index: RankValue, node: ast.expr
    ) -> RankValue: ...
    def places(self, thing: RankThing) -> list[str]: ...
    def global_name(self, module: Module, name: str) -> RankValue: ...

    # -- names that say what a value is
    def rank_value(self, kind: str, what: str, site: Site) -> RankValue: ...
    def by_name(self, name: str, site: Site) -> RankValue | None: ...
