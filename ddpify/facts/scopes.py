"""Functions, classes, modules and frames: where names live while a program is read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ddpify.facts.values import Definition, Thing, Value
from ddpify.python.classes import linearized
from ddpify.source import Site, Source

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(eq=False)
class ModuleInfo(Definition):
    """A local module: its source and its globals."""

    name: str
    source: Source
    tree: ast.Module
    globals: dict[str, Value] = field(default_factory=dict)
    ran: bool = False
    constants: dict[ast.Constant, Value] = field(default_factory=dict)  # the value of each literal
    stars: list[str] = field(default_factory=list)  # libraries of `from … import *`


@dataclass(eq=False)
class FunctionInfo(Definition):
    """A function, method or lambda of the project."""

    name: str
    node: FunctionNode
    module: ModuleInfo
    site: Site
    closure: Frame | None
    owner: ClassInfo | None = None
    decorators: tuple[Value, ...] = ()
    defaults: tuple[Value, ...] = ()
    kw_defaults: tuple[Value | None, ...] = ()
    setter: FunctionInfo | None = None  # of a property

    def decorated_with(self, *names: str) -> bool:
        """Whether a decorator has one of these qualified names."""
        found = (t.name for v in self.decorators for t in v.things)
        return any(name in names for name in found)


@dataclass(eq=False)
class ClassInfo(Definition):
    """A class of the project, with what it inherits."""

    name: str
    node: ast.ClassDef
    module: ModuleInfo
    site: Site
    bases: tuple[Value, ...]
    env: dict[str, Value] = field(default_factory=dict)
    thing: Thing | None = None  # what its name is bound to

    def mro(self) -> list[ClassInfo]:
        """This class and its local bases, nearest first."""
        return self._line

    @cached_property
    def _line(self) -> list[ClassInfo]:
        return linearized(self, ClassInfo.local_bases)

    def local_bases(self) -> list[ClassInfo]:
        """The bases that are of the project."""
        refs = (thing.ref for base in self.bases for thing in base.things)
        return [ref for ref in refs if isinstance(ref, ClassInfo)]

    def external_bases(self) -> tuple[str, ...]:
        """Qualified names of the bases that are not of the project."""
        names: list[str] = []
        for info in self.mro():
            for base in info.bases:
                names.extend(t.name for t in base.things if not isinstance(t.ref, ClassInfo))
        return tuple(names)

    def lookup(self, name: str) -> Value | None:
        """A method or class attribute, local bases included."""
        for info in self.mro():
            if name in info.env:
                return info.env[name]
        return None

    def method(self, name: str) -> FunctionInfo | None:
        """The one function under a name, local bases included."""
        return the_function(self.lookup(name))


def functions_in(value: Value | None) -> list[FunctionInfo]:
    """The functions of the project that a value may be."""
    refs = (thing.ref for thing in value.things) if value is not None else ()
    return [ref for ref in refs if isinstance(ref, FunctionInfo)]


def the_function(value: Value | None) -> FunctionInfo | None:
    """The one function of the project that a value is; None where it may be something else."""
    found = functions_in(value) if value is not None and len(value.things) == 1 else []
    return found[0] if found else None


@dataclass(frozen=True)
class Guard:
    """A condition that holds where an event happens."""

    test: Value
    site: Site
    holds: bool


@dataclass(eq=False)
class Loop:
    """One running loop: what it iterates and where."""

    site: Site
    header: Site
    target: str
    over: Value
    function: FunctionInfo | None
    frame: Frame
    body: Site
    kind: str
    first: int = 0
    parent: Loop | None = None
    held: int = 0  # how many conditions held when it began
    exits: list[Guard] = field(default_factory=list)  # what decides that it ends early
    names: dict[str, Value] = field(default_factory=dict)  # of its function, when it began


@dataclass(eq=False)
class Frame:
    """One activation of a function (or of a module's top level)."""

    module: ModuleInfo
    function: FunctionInfo | None
    env: dict[str, Value]
    outer: Frame | None = None
    stack: tuple[Site, ...] = ()
    caller: Frame | None = None
    loop: Loop | None = None
    guards: tuple[Guard, ...] = ()
    no_grad: bool = False
    globals_: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    returns: list[Value] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)
    statement: Site | None = None
    parameters: dict[str, Site | None] = field(default_factory=dict)
    contexts: tuple[Value, ...] = ()
    self_thing: Thing | None = None
    in_class: bool = False
    entered_with: int = 0
    leaves: list[dict[str, Value]] = field(default_factory=list)
    skips: list[Guard] = field(default_factory=list)  # under which a round, or all of it, is left

    def lookup(self, name: str) -> Value | None:
        """What ``name`` is bound to here: local, enclosing function, module."""
        if name not in self.globals_:
            frame: Frame | None = self
            while frame is not None:
                if name in frame.env:
                    return frame.env[name]
                frame = frame.outer
        return self.module.globals.get(name)

    def named(self) -> Iterator[tuple[str, Value]]:
        """What expressions name here: its own names, what its object keeps, the module's names."""
        yield from self.env.items()
        if self.self_thing is not None:
            own = next(iter(self.parameters), "self")
            yield from ((f"{own}.{name}", one) for name, one in self.self_thing.attrs.items())
        yield from self.module.globals.items()

    def value_of(self, path: str) -> Value | None:
        """What ``meter.sum`` is: an attribute of the one thing that its owner is."""
        first, *attributes = path.split(".")
        value = self.lookup(first)
        for attribute in attributes:
            value = value.things[0].attrs.get(attribute) if value and value.things else None
        return value

    def bind(self, name: str, value: Value) -> None:
        """Assign ``name`` in the scope Python would assign it in."""
        if name in self.globals_:
            self.module.globals[name] = value
        elif name in self.nonlocals and self.outer is not None:
            self.outer.bind(name, value)
        else:
            self.env[name] = value
