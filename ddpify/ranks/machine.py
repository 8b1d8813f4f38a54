"""The reader: runs a program on abstract values, as two ranks would, and keeps what happens."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from ddpify.python.words import PRINT
from ddpify.ranks import (
    assigning,
    attributes,
    branching,
    calls,
    elements,
    expressions,
    fields,
    functions,
    naming,
    sizes,
    statements,
    streams,
    words,
)
from ddpify.ranks.balance import Balance
from ddpify.ranks.events import Store
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.imports import Modules
from ddpify.ranks.interest import Interest
from ddpify.ranks.journal import Journal
from ddpify.ranks.model import ALL, RankCall, RankGuard, RankLoop, RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.origins import RANK, Origin
from ddpify.ranks.run import Run
from ddpify.ranks.settled import Settled
from ddpify.ranks.trace import Event, Inline, Item, Unread
from ddpify.ranks.values import constant

MAX_READINGS, LARGE = 2, 500


class RankReader(Journal):
    """One run from one start."""

    def __init__(self, modules: Modules, interest: Interest, run: Run, limit: int) -> None:
        super().__init__(run)
        self.modules = modules
        self.interest = interest
        self.limit = limit
        self.spent = 0
        self.opened = not run.script  # a process group; a function is called when there is one
        self.unread = False  # whether a library that is not known was called
        self.asked = False  # for a group that was not there
        self.flying: set[str] = set()  # the tensors that asynchronous calls got so far
        self.marks = False  # whether anything was summed over the ranks
        self.streams = streams.unseeded()
        self.entering: list[FunctionDefinition] = []
        self.entered: set[FunctionDefinition] = set()
        self.readings: dict[FunctionDefinition, tuple[int, int, list[Item]]] = {}
        self.remembered: dict[tuple[FunctionDefinition, RankThing | None], int] = (
            {}
        )  # by which ranks
        self.made: set[tuple[ast.If, RankThing]] = (
            set()
        )  # what all ranks have made at its first use
        self.choices: dict[str, tuple[str, RankValue, RankValue]] = {}
        self.deciding: set[str] = set()  # the conditions between them
        self.settled = Settled()  # what the opening of the group has answered
        self.submodules: dict[tuple[Module, str, int], RankValue | None] = {}
        self.namespaces: dict[Module, RankThing] = {}
        self.resolving: set[tuple[Module | ClassDefinition, str]] = set()
        self.externals: dict[str, RankValue] = {}
        self.patched: set[str] = set()
        self.shared: dict[str, dict[str, RankValue]] = {}  # attributes of many, by their one dict
        self.words: set[str] = set()
        self.closures: dict[RankThing, RankFrame | None] = (
            {}
        )  # the frames in which functions were made
        self.classes: dict[ClassDefinition, RankThing] = {}
        self.finished: dict[ClassDefinition, RankValue] = {}  # what their decorators made of them

    # -- state ---------------------------------------------------------------------------------

    def spend(self, f: RankFrame, node: ast.stmt) -> None:
        """Count a statement. A program that is too large is not followed further, by no rank."""
        self.spent += 1
        if self.spent > self.limit:
            self.run.complete = False
            self.run.stopped = self.run.stopped or f.module.site(node)
            self.items.append(Unread(self.live))
            self.live = 0

    def note_reading(self, info: FunctionDefinition, statements: int, items: list[Item]) -> None:
        """A function was read for all ranks: how much there was to read, and what it did."""
        times, most, _ = self.readings.get(info, (0, 0, items))
        self.readings[info] = (times + 1, max(most, statements), items)

    def read_enough(self, info: FunctionDefinition) -> list[Item] | None:
        """What a large function did, once it was read for its first calls: more would say the same
        again. A call that some ranks make is always read, to be compared with those of others."""
        times, most, items = self.readings.get(info, (0, 0, []))
        return items if self.live == ALL and times >= MAX_READINGS and most > LARGE else None

    # -- control -------------------------------------------------------------------------------

    def branch(self, f: RankFrame, test: RankValue, node: ast.expr, arms: tuple[Any, Any]) -> None:
        """Run ``arms`` (callables) under a condition: each for the ranks that may take it."""
        branching.branch(self, f, test, node, arms)

    def may(self, test: RankValue, live: int, holds: bool) -> int:
        """The ranks for which a condition may be ``holds``."""
        return branching.may(self, test, live, holds)

    def is_local(self, test: RankValue, live: int) -> bool:
        """Whether each rank may decide this for itself, in a way that is not known here."""
        return branching.is_local(self, test, live)

    def own(self, origins: frozenset[Origin]) -> bool:
        """Whether one of these origins makes a value each rank's own, beside the rank itself."""
        return branching.own(self, origins)

    def end(self, f: RankFrame, kind: str, node: ast.AST) -> None:
        """The ranks that are here leave."""
        branching.end(self, f, kind, node)

    def looping(
        self, loop: RankLoop, key: str, local: RankGuard | None = None
    ) -> AbstractContextManager[None]:
        """The body of a loop."""
        return branching.looping(self, loop, key, local)

    # -- records -------------------------------------------------------------------------------

    def event(self, op: str, call: RankCall | None, node: ast.AST, f: RankFrame) -> None:
        """A collective is entered."""
        if self.live:
            self.items.append(
                Event(op, call, node, f.module, self.live, self.here.guards, self.here.stack)
            )

    def store(
        self, f: RankFrame, base: RankValue, key: str, value: RankValue, node: ast.AST, el: bool
    ) -> None:
        """An attribute or an element is set."""
        self.run.stores.append(
            Store(
                self.tick(),
                base,
                key,
                value,
                node,
                f.module,
                self.live,
                self.here.guards,
                self.here.loops,
                self.here.stack,
                f.function,
                el,
            )
        )

    # -- the parts in other files ---------------------------------------------------------------

    def evaluate(self, f: RankFrame, node: ast.expr) -> RankValue:
        """The value of an expression."""
        return expressions.evaluate(self, f, node)

    def apply(
        self, f: RankFrame, callee: RankValue, node: ast.AST, args: tuple[RankValue, ...] = ()
    ) -> RankValue:
        """What a value gives when it is called."""
        return calls.applied_to(self, f, callee, node, args)

    def set_property(
        self, f: RankFrame, base: RankValue, name: str, node: ast.AST, value: RankValue
    ) -> bool:
        """``base.name = value`` of a property; whether it is one."""
        held = [(thing, thing.cls.setter(name)) for thing in base.things if thing.cls is not None]
        for thing, info in held:
            if info is not None and thing.kind == "instance":
                bound = RankThing("function", info.qualname, info=info, receiver=thing)
                functions.enter(self, f, bound, (value,), {}, None)
                return True
        return False

    def call_method(
        self,
        f: RankFrame,
        base: RankValue,
        name: str,
        node: ast.AST,
        args: tuple[RankValue, ...] = (),
    ) -> RankValue | None:
        """``base.name()`` that Python calls itself; None if it is not of the project."""
        return calls.call_method(self, f, base, name, node, args)

    def global_name(self, module: Module, name: str) -> RankValue:
        """A global of a module."""
        return naming.global_name(self, module, name)

    def runs(self, module: Module) -> bool:
        """Whether a module is the script that is run: its statements run in their order."""
        return self.run.script and self.run.start == module.path

    def bind(self, f: RankFrame, name: str, value: RankValue) -> None:
        """Bind a name."""
        assigning.bind(self, f, name, value)

    def attribute(self, f: RankFrame, base: RankValue, name: str, node: ast.expr) -> RankValue:
        """``base.name``."""
        return attributes.attribute_of(self, f, base, name, node)

    def item(self, f: RankFrame, base: RankValue, index: RankValue, node: ast.expr) -> RankValue:
        """``base[index]``."""
        return elements.item(self, f, base, index, node)

    def places(self, thing: RankThing) -> list[str]:
        """The attributes that a class pattern means by position."""
        return fields.places(self, thing)

    def change(self, f: RankFrame, node: ast.expr, old: RankValue, new: RankValue) -> None:
        """The list or dict that ``node`` gives was changed: all who hold it have ``new``."""
        if not self.aliases.change(self.write, old, new):
            assigning.assign_quietly(self, f, node, new)

    def execute(self, f: RankFrame, body: list[ast.stmt]) -> None:
        """Run statements for the ranks that are live."""
        statements.execute(self, f, body)

    def apart(self, f: RankFrame, body: list[ast.stmt]) -> None:
        """Run statements as an import does: for all ranks, and for good."""
        kept = (self.items, self.live, self.here)
        self.items, self.live, self.here = [], ALL, replace(self.here, guards=(), loops=())
        mark = len(self.journal)
        try:
            self.execute(f, body)
        finally:
            self.items, self.live, self.here = kept
            del self.journal[mark:]

    def enter(
        self,
        f: RankFrame | None,
        thing: RankThing,
        args: tuple[RankValue, ...],
        kwargs: dict[str, RankValue],
        one: RankCall | None,
        on_yield: Callable[[RankValue], None] | None = None,
    ) -> RankValue:
        """Run a function of the project and give what it returns."""
        return functions.enter(self, f, thing, args, kwargs, one, on_yield)

    def call_value(self, f: RankFrame, callee: RankValue, given: Given) -> RankValue:
        """Call whatever ``callee`` may be."""
        return calls.call_value(self, f, callee, given)

    def inline(self, items: list[Item]) -> None:
        """What a function did, in its caller's sequence."""
        if items:
            self.items.append(Inline(items, self.live))

    def rank_value(self, kind: str, what: str, site: Any) -> RankValue:
        """The rank, as read at ``site``."""
        return RankValue((0, 1), (), frozenset(), frozenset({Origin(kind, what, site)}))

    def by_name(self, name: str, site: Any) -> RankValue | None:
        """What an unknown thing of this name is in a distributed program."""
        if name in words.RANK_NAMES:
            return self.rank_value(RANK, name, site)
        if name in words.SIZE_NAMES:
            return constant(sizes.world_size())
        if name in words.LOCAL_NAMES:
            return self.rank_value("local-rank", name, site)
        if name in words.MAIN_NAMES:
            return RankValue((True, False), (), frozenset(), frozenset({Origin(RANK, name, site)}))
        return None

    def finish(self) -> Run:
        """The run with what follows from all of it."""
        run = self.run
        run.project = self.modules
        run.quiet = PRINT in self.patched
        run.joined = self.opened or not self.interest.opens
        run.opened = self.opened or self.unread
        run.frameworks = frozenset(
            word for top, word in words.FRAMEWORKS.items() if top in self.words
        )
        run.entered = frozenset(info.place for info in self.entered)
        balance = Balance()
        found = balance.check(self.items)
        run.complete = run.complete and not balance.cut
        run.mismatches = [one for one in found if not run.is_ours(one.site.path)]
        return run
