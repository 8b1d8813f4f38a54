"""The record of a reading: what happened, what every expression was, what was made where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

from ddpify.facts.events import Access, Bind, Call, Forward, Unknown, Where
from ddpify.facts.joining import held, join
from ddpify.facts.record import Event, Events
from ddpify.facts.scopes import (
    Frame,
    Loop,
    ModuleInfo,
)
from ddpify.facts.summaries import Summaries
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value
from ddpify.names import current
from ddpify.project import Project
from ddpify.source import Site


class ReadingRecord:
    """What is kept of a program while it is read; each object by its place and its callers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.summaries = Summaries()
        self.now = 0
        self.events = Events()
        self.loops: list[Loop] = []
        self.second_round = False  # of a loop around what is read
        self.repeated: set[tuple[Site, tuple[Site, ...]]] = set()  # loops of which two were read
        self.unknowns: list[Unknown] = []
        self.values: dict[Site, Value] = {}
        self.tallied: dict[Site, set[Thing]] = {}
        self.modules: dict[str, ModuleInfo] = {}
        self._wheres: dict[Frame, Where] = {}  # of the last event in each
        self._seen: dict[tuple[object, ...], Event] = {}
        self._made: dict[tuple[object, ...], Thing] = {}

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is read meanwhile is not kept: what happens, and what an expression is."""
        kept = dict(vars(self))
        containers = {n: copy(v) for n, v in kept.items() if isinstance(v, (dict, list, set))}
        vars(self).update(containers, summaries=Summaries(), events=Events())
        vars(self).update(values={}, tallied={}, _seen={}, _wheres={}, _made={})
        try:
            yield
        finally:
            spent = vars(self)["spent"]
            vars(self).update(kept, spent=spent)

    def tick(self) -> int:
        """The time of the next event."""
        self.now += 1
        return self.now

    def site(self, f: Frame, node: ast.AST) -> Site:
        """Where a node of the running module stands."""
        return f.module.source.site(node)

    def site_of(self, module: ModuleInfo, node: ast.AST) -> Site:
        """Where a node of ``module`` stands."""
        return module.source.site(node)

    def tree(self, path: str) -> Tree:
        """The syntax of a module that was read, with parents."""
        return self.project.files.once(Tree, self.modules[path].source)

    @property
    def trees(self) -> dict[str, Tree]:
        """The syntax of each module that was read, by path."""
        return {path: self.tree(path) for path in self.modules}

    def where(self, f: Frame) -> Where:
        """The circumstances of something that happens now."""
        assert f.statement is not None
        known = self._wheres.get(f)
        if known is None or not known.holds(f):
            stands = (f.statement, f.function, f, f.stack)
            known = Where(*stands, f.loop, f.guards, f.no_grad, f.contexts)
            self._wheres[f] = known
        return known

    def record(self, event: Event) -> None:
        """Keep an event; a repetition of one (second run of a loop) widens the first."""
        self.summaries.saw(event)
        key = _key(event)
        known = self._seen.get(key)
        if known is None:
            self._seen[key] = event
            self.events.append(event)
        else:
            _widen(known, event)

    def remember(self, f: Frame, node: ast.expr, value: Value) -> None:
        """Keep what an expression was, over all the contexts it is evaluated in."""
        site = self.site(f, node)
        known = self.values.get(site)
        if known is not value:
            self.values[site] = value if known is None else join(known, value)
        for thing in held(value, Kind.TALLY) if value.things else ():
            self.tallied.setdefault(site, set()).add(thing)

    def unknown(self, unknown: Unknown) -> None:
        """Keep something that could not be followed."""
        if unknown not in self.unknowns:
            self.unknowns.append(unknown)

    def made(self, kind: Kind) -> tuple[Thing, ...]:
        """Every thing of a kind, of all calls."""
        return tuple(t for t in self._made.values() if t.kind is kind)

    def make(self, kind: Kind, f: Frame, site: Site, name: str = "") -> Thing:
        """The thing made at ``site`` in this call: the same one when a loop comes by again."""
        key = (kind, site, f.stack, name)
        if key not in self._made:
            self._made[key] = Thing(kind, site, name)
        self.summaries.made(self._made[key])
        return self._made[key]

    def external(self, name: str, site: Site) -> Thing:
        """A name that is not of the project; of a helper, the one that it has today."""
        name = current(name)
        key = (Kind.EXTERNAL, name)
        if key not in self._made:
            self._made[key] = Thing(Kind.EXTERNAL, site, name)
        return self._made[key]


def _key(event: Event) -> tuple[object, ...]:
    if isinstance(event, Call):
        return (Call, event.site, event.where.stack, event.name)
    if isinstance(event, Bind):
        return (Bind, event.site, event.where.stack)
    if isinstance(event, Access):
        return (Access, event.base_site, event.attribute, event.where.stack)
    return (Forward, event.call.site, event.call.where.stack, event.model)


def _widen(known: Event, event: Event) -> None:
    if isinstance(known, Call) and isinstance(event, Call):
        known.args = tuple(join(a, b) for a, b in zip(known.args, event.args, strict=False))
        known.kwargs = {k: join(known.kwargs.get(k), v) for k, v in event.kwargs.items()}
        known.receiver = join(known.receiver, event.receiver) if event.receiver else known.receiver
        known.result = join(known.result, event.result)
    elif isinstance(known, Bind) and isinstance(event, Bind):
        known.value = join(known.value, event.value)
    elif isinstance(known, Access) and isinstance(event, Access):
        known.base = join(known.base, event.base)
