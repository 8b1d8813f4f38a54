"""What the reader's parts may ask of the reader: thus none of them has to import another."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from ddpify.facts.events import Call, LoopEnd
from ddpify.facts.forms import AS_IT_STANDS, Target
from ddpify.facts.frameworks import mentions
from ddpify.facts.joining import join
from ddpify.facts.recorder import ReadingRecord
from ddpify.facts.scopes import (
    ClassInfo,
    Frame,
    FunctionInfo,
    FunctionNode,
    Guard,
    Loop,
    ModuleInfo,
)
from ddpify.facts.values import NOTHING, Kind, Thing, Value, constant, one
from ddpify.names import HEADER_PREFIX, INSTALLED
from ddpify.project import Project
from ddpify.python import words
from ddpify.source import Site, Source

MAX_DEPTH = 24


class Machine(ReadingRecord):
    """One reading of one entry, as statements, expressions, calls, libraries and facts see it."""

    def __init__(self, project: Project, target: Target = AS_IT_STANDS) -> None:
        super().__init__(project)
        self.target = target  # the program as it will be
        self.sharded, self.spared = target.sharded, target.spared
        self.distributed = False  # whether a file that was read is of a distributed program
        self.parallel = False  # whether `nn.DataParallel` was called
        self.firsts: list[Call] = []  # `next(iter(loader))` that rank 0 will answer for all
        self.exhausted = False
        self._entered: list[FunctionInfo] = []
        self.entered_at: set[Site] = set()
        self._built: set[ClassInfo] = set()
        self._functions: set[ClassInfo] = set()  # modules that are read as the function they are
        self.ends: dict[tuple[Site, tuple[Site, ...]], LoopEnd] = {}

    # -- what the parts do -----------------------------------------------------------------

    @abstractmethod
    def spend(self) -> None:
        """Count a step. Raises OutOfBudget."""

    @abstractmethod
    def execute(self, f: Frame, body: Sequence[ast.stmt]) -> bool:
        """Run statements in a frame."""

    @abstractmethod
    def evaluate(self, f: Frame, node: ast.expr) -> Value:
        """Evaluate an expression in a frame."""

    @abstractmethod
    def call(self, f: Frame, node: ast.Call, alone: bool = False) -> Value:
        """Evaluate a call; ``alone`` when it is a statement of its own."""

    @abstractmethod
    def apply_wraps(self, f: Frame, site: Site) -> None:
        """In the target program, names planned to be wrapped after this statement are."""

    @abstractmethod
    def close_loop(self, f: Frame, loop: Loop) -> None:
        """A loop over a sharded loader ends: its sums are this rank's, and are to be reduced."""

    @abstractmethod
    def without_grad(self, value: Value, before: bool) -> bool:
        """Whether there are no gradients in a context, or none in the function it decorates."""

    @abstractmethod
    def entered(self, f: Frame, value: Value) -> Value:
        """What ``with value as x`` binds."""

    @abstractmethod
    def assign(
        self, f: Frame, target: ast.expr, value: Value, source: ast.expr | None = None
    ) -> None:
        """Bind ``target`` to ``value``, destructuring tuples."""

    @abstractmethod
    def attribute(self, f: Frame, base: Value, name: str, node: ast.AST) -> Value:
        """``base.name``."""

    @abstractmethod
    def element_of(self, f: Frame, value: Value) -> Value:
        """What iterating over ``value`` yields."""

    @abstractmethod
    def enter(
        self,
        f: Frame | None,
        info: FunctionInfo,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        site: Site,
        arg_sites: tuple[Site, ...] = (),
        kwarg_sites: Mapping[str, Site] | None = None,
    ) -> Value:
        """Run a project function with these arguments and give what it returns."""

    @abstractmethod
    def apply(self, f: Frame, function: Value, args: tuple[Value, ...], site: Site) -> Value:
        """What a function, class or bound method gives, called by Python itself."""

    @abstractmethod
    def follows(self, info: ClassInfo, thing: Thing) -> bool:
        """Whether calls of a module just made are read as calls of its forward."""

    # -- control -------------------------------------------------------------------------------

    @contextmanager
    def guarded(self, f: Frame, test: Value, site: Site, holds: bool) -> Iterator[None]:
        """Inside, the condition is known to hold (or not)."""
        held = f.guards
        self.hold(f, test, site, holds)
        try:
            yield
        finally:
            f.guards = held

    def hold(self, f: Frame, test: Value, site: Site, holds: bool) -> None:
        """From here to the end of the block the condition is known."""
        f.guards = (*f.guards, Guard(test, site, holds))

    # -- functions and classes -----------------------------------------------------------------

    def make_function(self, f: Frame, node: FunctionNode, name: str) -> Thing:
        """The thing a ``def`` or ``lambda`` makes."""
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        closure = f.outer if f.in_class else (f if f.function is not None else None)
        info = FunctionInfo(
            name,
            node,
            f.module,
            self.site(f, node),
            closure,
            decorators=tuple(self.evaluate(f, d) for d in decorators),
            defaults=tuple(self.evaluate(f, d) for d in node.args.defaults),
            kw_defaults=tuple(self.evaluate(f, d) if d else None for d in node.args.kw_defaults),
        )
        return Thing(Kind.FUNCTION, info.site, name, ref=info)

    def own(self, value: Value, info: ClassInfo) -> None:
        """Tell a function that it is a method."""
        for thing in value.things:
            if isinstance(thing.ref, FunctionInfo):
                for function in (thing.ref, thing.ref.setter):
                    if function is not None and function.owner is None:
                        function.owner = info

    def bind_method(self, receiver: Thing, value: Value, site: Site) -> Value:
        """A class attribute read through an instance."""
        bound = []
        for thing in value.things:
            info = thing.ref
            of_class = receiver.kind is Kind.CLASS
            if not isinstance(info, FunctionInfo) or info.decorated_with("builtins.staticmethod"):
                bound.append(one(thing))
            elif info.decorated_with("builtins.classmethod"):
                made = receiver.ref.thing if isinstance(receiver.ref, ClassInfo) else None
                made = receiver if of_class or made is None else made
                bound.append(one(Thing(Kind.METHOD, site, info.name, ref=info, receiver=made)))
            elif of_class:  # `Base.__init__(self)`: the object is an argument
                bound.append(one(thing))
            elif info.decorated_with("builtins.property", words.CACHED_PROPERTY):
                bound.append(self.enter(None, info, (one(receiver),), {}, site))
            else:
                bound.append(one(Thing(Kind.METHOD, site, info.name, ref=info, receiver=receiver)))
        return join(*bound) if bound else value

    def builds(self, info: ClassInfo) -> bool:
        """Whether a module's ``__init__`` is still to be read: of a model once is enough."""
        if info in self._built:
            return info in self._functions
        self._built.add(info)
        return True

    @contextmanager
    def inside(self, info: FunctionInfo) -> Iterator[bool]:
        """Guard against recursion and endless depth; yields whether to go in."""
        allowed = self._entered.count(info) < 1 and len(self._entered) < MAX_DEPTH
        self._entered.append(info)
        try:
            yield allowed
        finally:
            self._entered.pop()

    # -- modules -------------------------------------------------------------------------------

    def _load(self, name: str, file: Any) -> ModuleInfo | None:
        if file.is_dir():  # a package without `__init__.py`
            empty = Source.from_bytes(b"", file / "__init__.py", f"{name}/__init__.py")
            return ModuleInfo(name, empty, empty.parse())
        source = self.project.read(file)
        if source is None:
            return None
        if source.path not in self.modules:
            self.modules[source.path] = ModuleInfo(name, source, source.parse())
            if not source.text.startswith(HEADER_PREFIX):
                self.distributed |= any(mentions(source.parse()))
            if "sys.path" in source.text:
                self.project.look_in_added(self.modules[source.path].tree, source.file)
        return self.modules[source.path]

    def _run_module(self, module: ModuleInfo) -> None:
        if module.ran:
            return
        module.ran = True
        module.globals["__name__"] = constant(module.name)
        frame = Frame(module, None, module.globals)
        self.execute(frame, module.tree.body)

    def import_module(self, f: Frame, dotted: str, site: Site) -> Value:
        """``import dotted``."""
        return self._module_value(self.project.find(dotted), dotted, site)

    def import_from(self, f: Frame, dotted: str, level: int, site: Site) -> Value:
        """The module of ``from dotted import …``."""
        if level:
            file = self.project.find_relative(f.module.source.file, level, dotted)
        else:
            file = self.project.find(dotted)
        return self._module_value(file, dotted, site)

    def _module_value(self, file: Any, dotted: str, site: Site) -> Value:
        if file is None:
            return one(self.external(dotted, site))
        module = self._load(dotted, file)
        if module is None or module.source.text.startswith(HEADER_PREFIX):
            return one(self.external(INSTALLED if module is not None else dotted, site))
        self._run_module(module)
        return one(Thing(Kind.MODULE, site, dotted, ref=module))

    def module_globals(self, thing: Thing) -> dict[str, Value]:
        """The globals of a local module."""
        assert isinstance(thing.ref, ModuleInfo)
        return thing.ref.globals

    def module_attribute(self, thing: Thing, name: str) -> Value:
        """``module.name``: a global or a submodule."""
        self.summaries.looked_up(self.module_globals(thing), name)
        found = self.module_globals(thing).get(name)
        if found is not None:
            return found
        assert isinstance(thing.ref, ModuleInfo)
        file = self.project.find_relative(thing.ref.source.file, 1, name)
        if thing.ref.source.file.name == "__init__.py" and file is not None:
            return self._module_value(file, f"{thing.name}.{name}", thing.born)
        if name == "__dict__":
            keys = cast("dict[object, Value]", thing.ref.globals)
            return one(Thing(Kind.DICT, thing.born, keys=keys))
        asked = self.module_globals(thing).get("__getattr__")
        if asked is not None:
            frame = Frame(thing.ref, None, {}, statement=thing.born)
            return self.apply(frame, asked, (constant(name),), thing.born)
        return one(Thing(Kind.UNKNOWN, thing.born, f"{thing.name}.{name}"))

    def member(self, f: Frame, module: Value, name: str, site: Site) -> Value:
        """``from module import name``."""
        found = []
        for thing in module.things:
            if thing.kind is Kind.MODULE:
                found.append(self.module_attribute(thing, name))
            else:
                found.append(one(self.external(f"{thing.name}.{name}", site)))
        return join(*found) if found else NOTHING
