"""What the reader's parts may ask of the reader: thus none of them has to import another."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ddpify.ranks.aliases import Aliases, Changes
from ddpify.ranks.frames import Frame
from ddpify.ranks.given import Given
from ddpify.ranks.imports import Modules
from ddpify.ranks.interest import Interest
from ddpify.ranks.model import Call, Guard, Here, Loop, Origin, Thing, Value
from ddpify.ranks.modules import ClassInfo, FunctionInfo, Module
from ddpify.ranks.run import Run
from ddpify.ranks.trace import Item
from ddpify.source import Site


class Machine(Protocol):
    """One run from one start, as statements, expressions, calls and libraries see it."""

    # -- the project, and what is kept of the run
    modules: Modules
    interest: Interest
    run: Run
    # -- who is here, under which circumstances, and what they have done
    live: int
    here: Here
    opened: bool  # a process group
    items: list[Item]
    order: int
    spent: int
    streams: dict[str, Value]
    aliases: Aliases
    marks: bool
    # -- what was made, entered and looked up so far
    entering: list[FunctionInfo]
    entered: set[FunctionInfo]
    remembered: dict[tuple[FunctionInfo, Thing | None], int]
    made: set[tuple[ast.If, Thing]]
    reread: list[ast.AST]
    closures: dict[Thing, Frame | None]
    classes: dict[ClassInfo, Thing]
    finished: dict[ClassInfo, Value]
    namespaces: dict[Module, Thing]
    submodules: dict[tuple[Module, str, int], Value | None]
    resolving: set[tuple[Module | ClassInfo, str]]
    externals: dict[str, Value]
    patched: set[str]
    words: set[str]

    # -- running
    def evaluate(self, f: Frame, node: ast.expr) -> Value: ...
    def execute(self, f: Frame, body: list[ast.stmt]) -> None: ...
    def enter(
        self,
        f: Frame | None,
        thing: Thing,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        one: Call | None,
        on_yield: Callable[[Value], None] | None = None,
    ) -> Value: ...
    def apart(self, f: Frame, body: list[ast.stmt]) -> None: ...
    def runs(self, module: Module) -> bool: ...
    def call_value(self, f: Frame, callee: Value, given: Given) -> Value: ...
    def apply(
        self, f: Frame, callee: Value, node: ast.AST, args: tuple[Value, ...] = ()
    ) -> Value: ...
    def call_method(
        self, f: Frame, base: Value, name: str, node: ast.AST, args: tuple[Value, ...] = ()
    ) -> Value | None: ...
    def spend(self) -> None: ...

    # -- state
    def tick(self) -> int: ...
    def write(self, space: dict[str, Value], key: str, value: Value) -> None: ...
    def hold(self, space: dict[str, Value], key: str, value: Value) -> None: ...
    def bind(self, f: Frame, name: str, value: Value) -> None: ...
    def change(self, f: Frame, node: ast.expr, old: Value, new: Value) -> None: ...
    def set_property(
        self, f: Frame, base: Value, name: str, node: ast.AST, value: Value
    ) -> bool: ...
    def tried(self, run: Callable[[], None]) -> Changes: ...
    def mark(self) -> tuple[int, ...]: ...
    def back_to(self, mark: tuple[int, ...]) -> None: ...
    def note_reading(self, info: FunctionInfo, statements: int, items: list[Item]) -> None: ...
    def read_enough(self, info: FunctionInfo) -> list[Item] | None: ...

    # -- control
    def branch(self, f: Frame, test: Value, node: ast.expr, arms: tuple[Any, Any]) -> None: ...
    def looping(
        self, loop: Loop, key: str, local: Guard | None = None
    ) -> AbstractContextManager[None]: ...
    def end(self, f: Frame, kind: str, node: ast.AST) -> None: ...
    def inline(self, items: list[Item]) -> None: ...
    def may(self, test: Value, live: int, holds: bool) -> int: ...
    def is_local(self, test: Value, live: int) -> bool: ...
    def own(self, origins: frozenset[Origin]) -> bool: ...

    # -- records
    def event(self, op: str, call: Call | None, node: ast.AST, f: Frame) -> None: ...
    def store(
        self, f: Frame, base: Value, key: str, value: Value, node: ast.AST, el: bool
    ) -> None: ...

    # -- parts of values
    def attribute(self, f: Frame, base: Value, name: str, node: ast.expr) -> Value: ...
    def item(self, f: Frame, base: Value, index: Value, node: ast.expr) -> Value: ...
    def places(self, thing: Thing) -> list[str]: ...
    def global_name(self, module: Module, name: str) -> Value: ...

    # -- names that say what a value is
    def rank_value(self, kind: str, what: str, site: Site) -> Value: ...
    def by_name(self, name: str, site: Site) -> Value | None: ...
