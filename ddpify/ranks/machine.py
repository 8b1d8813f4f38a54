"""The reader: runs a program on abstract values, as two ranks would, and keeps what happens."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ddpify.python.words import PRINT
from ddpify.ranks import (
    assigning,
    attributes,
    calls,
    elements,
    expressions,
    fields,
    functions,
    naming,
    narrowing,
    statements,
    streams,
    words,
)
from ddpify.ranks.aliases import Aliases, Changes, is_container
from ddpify.ranks.balance import Balance
from ddpify.ranks.events import Exit, Here, Store
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.imports import Modules
from ddpify.ranks.interest import Interest
from ddpify.ranks.model import (
    ALL,
    CLOCK,
    DATA,
    RANDOM,
    RANK,
    Origin,
    RankCall,
    RankGuard,
    RankLoop,
    RankThing,
    RankValue,
    Symbol,
)
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.run import Run
from ddpify.ranks.trace import Branch, End, Event, Inline, Item, Repeat, Split, Unread
from ddpify.ranks.values import asks_presence, merge, narrowed, truth

MAX_READINGS, LARGE = 2, 500
MISSING: Any = object()


class RankReader:
    """One run from one start."""

    def __init__(self, modules: Modules, interest: Interest, run: Run, limit: int) -> None:
        self.modules = modules
        self.interest = interest
        self.run = run
        self.limit = limit
        self.order = 0
        self.spent = 0
        self.live = ALL
        self.here = Here()
        self.opened = not run.script  # a process group; a function is called when there is one
        self.marks = False  # whether anything was summed over the ranks
        self.streams = streams.unseeded()
        self.items: list[Item] = []
        self.journal: list[tuple[dict[str, RankValue], str, Any]] = []
        self.aliases = Aliases()
        self.entering: list[FunctionDefinition] = []
        self.entered: set[FunctionDefinition] = set()
        self.readings: dict[FunctionDefinition, tuple[int, int, list[Item]]] = {}
        self.remembered: dict[tuple[FunctionDefinition, RankThing | None], int] = (
            {}
        )  # by which ranks
        self.made: set[tuple[ast.If, RankThing]] = (
            set()
        )  # what all ranks have made at its first use
        self.submodules: dict[tuple[Module, str, int], RankValue | None] = {}
        self.reread: list[ast.AST] = []  # loops of which two rounds were read
        self.namespaces: dict[Module, RankThing] = {}
        self.resolving: set[tuple[Module | ClassDefinition, str]] = set()
        self.externals: dict[str, RankValue] = {}
        self.patched: set[str] = set()
        self.words: set[str] = set()
        self.closures: dict[RankThing, RankFrame | None] = (
            {}
        )  # the frames in which functions were made
        self.classes: dict[ClassDefinition, RankThing] = {}
        self.finished: dict[ClassDefinition, RankValue] = {}  # what their decorators made of them

    # -- state ---------------------------------------------------------------------------------

    def tick(self) -> int:
        """The number of the next event."""
        self.order += 1
        return self.order

    def spend(self) -> None:
        """Count a statement. A program that is too large is not followed further, by no rank."""
        self.spent += 1
        if self.spent > self.limit:
            self.run.complete = False
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

    def write(self, space: dict[str, RankValue], key: str, value: RankValue) -> None:
        """Set a name, so that it can be taken back after a branch."""
        self.journal.append((space, key, space.get(key, MISSING)))
        self.hold(space, key, value)

    def hold(self, space: dict[str, RankValue], key: str, value: RankValue) -> None:
        """Set a name for good."""
        space[key] = value
        if is_container(value):
            self.aliases.note(value, space, key)

    def take_back(self, mark: int) -> Changes:
        """Undo what was written since ``mark``; what it was."""
        changes: Changes = {}
        while len(self.journal) > mark:
            space, key, old = self.journal.pop()
            if (id(space), key) not in changes and key in space:
                changes[(id(space), key)] = (space, space[key])
            if old is MISSING:
                space.pop(key, None)
            else:
                space[key] = old
        return changes

    def tried(self, run: Callable[[], None]) -> Changes:
        """Run a block and take back what it changes."""
        mark = len(self.journal)
        run()
        return self.take_back(mark)

    def mark(self) -> tuple[int, ...]:
        """How much has happened so far."""
        return (len(self.journal), *map(len, self._records()), self.live)

    def back_to(self, mark: tuple[int, ...]) -> None:
        """Take back what happened since ``mark``."""
        self.take_back(mark[0])
        for record, length in zip(self._records(), mark[1:-1], strict=True):
            del record[length:]
        self.live = mark[-1]

    def _records(self) -> tuple[list[Any], ...]:
        run = self.run
        return (self.reread, self.items, run.calls, run.stores, run.exits, run.reads, run.loops)

    # -- control -------------------------------------------------------------------------------

    def branch(self, f: RankFrame, test: RankValue, node: ast.expr, arms: tuple[Any, Any]) -> None:
        """Run ``arms`` (callables) under a condition: each for the ranks that may take it."""
        live = self.live
        takes = [self.may(test, live, True), self.may(test, live, False)]
        local = self.is_local(test, live)
        results = []
        told: list[Any] = []
        mark = len(self.journal)
        items = self.items
        for arm, holds in zip(arms, (True, False), strict=True):
            ranks = takes[0 if holds else 1]
            self.live, self.items = ranks, []
            told.append(narrowing.narrow(self, f, node, holds) if ranks else [])
            if ranks:
                here = self.here
                divides = ranks != live and not local
                may = ranks if divides else ALL
                self.here = here.under(RankGuard(test, node, f.module, holds, may))
                try:
                    arm()
                finally:
                    self.here = here
            results.append((self.live, self.items, self.take_back(mark)))
        self.items = items
        narrowing.widen(told, results)
        self._add_condition(f, test, node, live, takes, local, results)
        self._merge(f, test, node, live, takes, results)
        self.live = results[0][0] | results[1][0]

    def may(self, test: RankValue, live: int, holds: bool) -> int:
        """The ranks for which a condition may be ``holds``."""
        ranks = 0
        for rank in (0, 1):
            known = truth(test.atoms[rank])
            if live & (1 << rank) and (known is None or known is holds):
                ranks |= 1 << rank
        return ranks

    def is_local(self, test: RankValue, live: int) -> bool:
        """Whether each rank may decide this for itself, in a way that is not known here."""
        if any(isinstance(atom, Symbol) and atom.key == "synced" for atom in test.atoms):
            return False  # one rank has what the other sent
        if asks_presence(test):
            return False
        unknown = any(live & (1 << r) and truth(test.atoms[r]) is None for r in (0, 1))
        apart = live == ALL and test.by_rank and _told_apart(test)
        return unknown and (apart or self.own(test.origins))

    def own(self, origins: frozenset[Origin]) -> bool:
        """Whether one of these origins makes a value each rank's own, beside the rank itself."""
        return any(self.decides(origin) for origin in origins)

    def decides(self, origin: Origin) -> bool:
        """Whether ranks may come to different conclusions: callers that are not seen may seed, and
        files are taken to be those of all."""
        if origin.kind == RANDOM:
            return self.run.script
        return origin.kind in (DATA, CLOCK)

    def _add_condition(
        self,
        f: RankFrame,
        test: RankValue,
        node: ast.expr,
        live: int,
        takes: list[int],
        local: bool,
        results: list[Any],
    ) -> None:
        arms = (results[0][1], results[1][1])
        if not arms[0] and not arms[1]:
            return
        if takes[0] == 0 or takes[1] == 0:
            self.items += arms[0] or arms[1]
        elif local and takes[0] == takes[1]:
            guard = RankGuard(test, node, f.module, True, live)
            self.items.append(Split(guard, arms, live))
        else:
            known = [(atom, truth(atom)) for atom in test.atoms]
            tests = [atom if holds is None else holds for atom, holds in known]
            self.items.append(Branch((tests[0], tests[1]), arms, live))

    def _merge(
        self,
        f: RankFrame,
        test: RankValue,
        node: ast.expr,
        live: int,
        takes: list[int],
        results: list[Any],
    ) -> None:
        changed = {**results[0][2], **results[1][2]}
        apart = takes[0] != takes[1] or self.is_local(test, live)
        why: frozenset[Origin] = frozenset()
        if apart and test.origins:
            why = test.origins
        elif takes[0] != takes[1] and takes[0] and takes[1]:
            why = frozenset({Origin(RANK, "rank", f.module.site(node))})
        merged: dict[tuple[Any, ...], RankValue] = {}  # two names of one list stay so
        for (number, key), (space, _) in changed.items():
            old = space.get(key)
            sources = _sources((number, key), old, live, takes, results)
            if sources is None:
                continue
            lists = is_container(sources[0][0])
            same = (id(old), *(tuple(map(id, values)) for values in sources)) if lists else ()
            if not lists or same not in merged:
                name = f"{key}@{f.module.path}:{node.lineno}"
                made = merge(name, sources, why, self.is_local(test, live))
                merged[same] = made if old is None else narrowed(old, made, live)
            self.write(space, key, merged[same])

    def end(self, f: RankFrame, kind: str, node: ast.AST) -> None:
        """The ranks that are here leave."""
        made = Exit(
            self.tick(),
            kind,
            node,
            f.module,
            self.live,
            self.here.guards,
            self.here.loops,
            f.function,
        )
        self.run.exits.append(made)
        self.items.append(End(made, self.live))
        self.live = 0

    @contextmanager
    def looping(self, loop: RankLoop, key: str, local: RankGuard | None = None) -> Iterator[None]:
        """The body of a loop."""
        live, items, here = self.live, self.items, self.here
        self.items, self.here = [], replace(here, loops=(*here.loops, loop))
        self.run.loops.append(loop)
        try:
            yield
        finally:
            body, self.items, self.here, self.live = self.items, items, here, live
            if body:
                one: Item = Repeat(key, loop.node, body, live)
                self.items.append(Split(local, ([one], []), live) if local else one)

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
        if name in words.LOCAL_NAMES:
            return self.rank_value("local-rank", name, site)
        if name in words.MAIN_NAMES:
            return RankValue((True, False), (), frozenset(), frozenset({Origin(RANK, name, site)}))
        return None

    def finish(self) -> Run:
        """The run with what follows from all of it."""
        run = self.run
        run.quiet = PRINT in self.patched
        run.frameworks = frozenset(
            word for top, word in words.FRAMEWORKS.items() if top in self.words
        )
        run.entered = frozenset(info.place for info in self.entered)
        found = Balance().check(self.items)
        run.mismatches = [one for one in found if not run.is_ours(one.site.path)]
        return run


def _sources(
    key: tuple[int, str], old: RankValue | None, live: int, takes: list[int], results: list[Any]
) -> tuple[list[RankValue], list[RankValue]] | None:
    """What a name may be on each rank after the arms of a branch; None if no rank comes out.

    A rank that is not here has no say.
    """
    sources: tuple[list[RankValue], list[RankValue]] = ([], [])
    for rank in (0, 1):
        for (after, _, changes), may in zip(results, takes, strict=True):
            if may & after & (1 << rank):
                value = changes[key][1] if key in changes else old
                sources[rank].extend([value] if value is not None else [])
    if not sources[0] and not sources[1]:
        return None
    for rank in (0, 1):
        if not sources[rank]:
            here = [old] if old is not None and live & (1 << rank) else []
            sources[rank].extend(here or sources[1 - rank])
    return sources


def _told_apart(test: RankValue) -> bool:
    """Whether a condition on the rank is another one on each: ``rank in ranks``."""
    keys = [atom.key for atom in test.atoms if isinstance(atom, Symbol)]
    return len(set(keys)) == 2 and "synced" not in keys
