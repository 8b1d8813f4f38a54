"""The modules of a project: parsed once, when a name of theirs is asked for."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ddpify.python.classes import linearized
from ddpify.python.toplevel import Statements, statements_of
from ddpify.ranks.attempts import Attempt, attempts
from ddpify.source import Site, Source

Place = tuple[str, int]  # where a function starts: path and line
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_CALLED = re.compile(r"(\w+)\s*\(")
_MODULE = "torch.nn.Module"
_LAYER = re.compile(r"torch\.nn\.(?!Module$|Parameter$)[A-Z]\w*")  # a class that is a module


@dataclass(eq=False)
class FunctionDefinition:
    """A ``def`` or ``lambda`` of the project."""

    name: str
    node: FunctionNode
    module: Module
    owner: ClassDefinition | None = None
    generator: bool = False

    @property
    def qualname(self) -> str:
        """``module.Class.name``."""
        parts = (self.module.name, self.owner.name if self.owner else "", self.name)
        return ".".join(part for part in parts if part)

    @property
    def site(self) -> Site:
        """The place of the definition."""
        return self.module.site(self.node)

    @property
    def place(self) -> Place:
        """What tells it from other functions, in every process."""
        return (self.module.path, self.node.lineno)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what it is given by position, its object first."""
        return tuple(one.arg for one in (*self.node.args.posonlyargs, *self.node.args.args))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its syntax tree, see ``Module.nodes``."""
        return tuple(ast.walk(self.node))

    @cached_property
    def goes_round(self) -> bool:
        """Whether it has a loop of its own."""
        loops = (ast.For, ast.While, ast.comprehension)
        return any(isinstance(node, loops) for node in self.nodes)

    @cached_property
    def stored(self) -> dict[str, str]:
        """Attributes of its object that are set once, to a parameter as it was given."""
        own, *names = self.parameters or ("",)
        nodes = [*ast.walk(self.node)]
        bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        sets = Counter(
            n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        )
        body = self.node.body if isinstance(self.node, ast.FunctionDef) else []
        return {
            target.attr: value.id
            for node in body
            for target, value in _pairs(node)
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == own
            if isinstance(value, ast.Name) and value.id in names and value.id not in bound
            if sets[target.attr] == 1
        }

    @property
    def text(self) -> str:
        """The source of a definition, decorators excluded, by whole lines."""
        return "\n".join(self.module.source.lines[self.node.lineno - 1 : self.node.end_lineno])

    def called(self) -> set[str]:
        """The last parts of the names it calls, or seems to: read from the text."""
        if not hasattr(self, "_called"):
            self._called = set(_CALLED.findall(self.text))
        return self._called


@dataclass(eq=False)
class ClassDefinition:
    """A class of the project; ``bases`` are resolved when it is first looked up."""

    name: str
    node: ast.ClassDef
    module: Module
    bases: tuple[ClassDefinition | str, ...] = ()
    methods: dict[str, FunctionDefinition] = field(default_factory=dict)
    assigns: dict[str, ast.expr] = field(default_factory=dict)
    tests: dict[str, list[ast.expr]] = field(default_factory=dict)  # see `asked`
    sets: dict[ast.AST, frozenset[str]] = field(default_factory=dict)
    setters: dict[str, FunctionDefinition] = field(default_factory=dict)
    _order: tuple[tuple[ClassDefinition, ...], list[ClassDefinition]] | None = None

    @cached_property
    def statements(self) -> dict[str, Statements]:
        """What binds and changes each name of its body."""
        return statements_of(self.node.body, imports=True)

    def set_later(self) -> set[str]:
        """Attributes that a method other than ``__init__`` sets, and not always alike."""
        if not hasattr(self, "_set_later"):
            sets = {method: list(_sets(method.node)) for method in self.methods.values()}
            every = Counter(name for found in sets.values() for name, _ in found)
            self._set_later = {
                name
                for method, found in sets.items()
                if method.name not in ("__init__", "__post_init__")
                for name, alike in found
                if every[name] > 1 or not alike
            }
        return self._set_later

    def mro(self) -> list[ClassDefinition]:
        """Itself and its project bases, in the order in which Python looks attributes up."""
        key = tuple(self._bases())
        if self._order is None or self._order[0] != key:
            self._order = (key, linearized(self, ClassDefinition._bases))
        return self._order[1]

    def _bases(self) -> list[ClassDefinition]:
        return [base for base in self.bases if isinstance(base, ClassDefinition)]

    def external_bases(self) -> KeysView[str]:
        """Qualified names of the bases that are not of the project, from left to right."""
        found: dict[str, None] = {}
        seen: set[ClassDefinition] = set()
        todo: list[ClassDefinition | str] = [self]
        while todo:
            one = todo.pop()
            if isinstance(one, str):
                found[one] = None
            elif one not in seen:
                seen.add(one)
                todo += reversed(one.bases)
        return found.keys()

    def setter(self, name: str) -> FunctionDefinition | None:
        """What sets a property, inherited ones included."""
        return next((one.setters[name] for one in self.mro() if name in one.setters), None)

    def method(self, name: str) -> FunctionDefinition | None:
        """A method, inherited ones included."""
        return next((i.methods[name] for i in self.mro() if name in i.methods), None)

    def inherits(self, *names: str) -> bool:
        """Whether one of these external names is among a class's bases, or a base of those."""
        bases = self.external_bases()
        if not bases.isdisjoint(names):
            return True
        return _MODULE in names and any(map(_LAYER.fullmatch, bases))


@dataclass(eq=False)
class Module:
    """One parsed file: top-level definitions and imports, found without running anything."""

    name: str
    source: Source
    tree: ast.Module
    file: Path
    ours: bool = False  # a copy of the helpers, which have tests of their own
    functions: dict[str, FunctionDefinition] = field(default_factory=dict)
    classes: dict[str, ClassDefinition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    stars: list[tuple[str, int]] = field(default_factory=list)
    assigns: dict[str, ast.expr] = field(default_factory=dict)
    carried: dict[ast.AST, tuple[set[str], set[str], set[tuple[str, str]]]] = field(
        default_factory=dict  # by a loop
    )
    _sites: dict[ast.AST, Site] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The file, relative to the project's root."""
        return self.source.path

    def site(self, node: ast.AST) -> Site:
        """Where a node stands."""
        found = self._sites.get(node)
        if found is None:
            found = self._sites[node] = self.source.site(node)
        return found

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        return self.source.segment(self.source.span(node))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its syntax tree: many rules look through it for something."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def assigned(self) -> list[tuple[str, ast.expr]]:
        """Every attribute that is assigned in the file, as it is written, and what it is given."""
        nodes = (n for n in self.nodes if isinstance(n, (ast.Assign, ast.AnnAssign)))
        return [
            (ast.unparse(target), node.value)
            for node in nodes
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Attribute) and node.value is not None
        ]

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """The ``try`` statements of the file."""
        return tuple(attempts(self.source, self.nodes)) if "try" in self.source.text else ()

    @cached_property
    def asserted(self) -> frozenset[str]:
        """What the file asserts, anywhere."""
        if "assert" not in self.source.text:
            return frozenset()
        nodes = (node for node in self.nodes if isinstance(node, ast.Assert))
        return frozenset(ast.unparse(node.test) for node in nodes)

    @cached_property
    def statements(self) -> dict[str, Statements]:
        """What binds and changes each name of the top level."""
        return statements_of(self.tree.body)

    def all_functions(self) -> Iterator[FunctionDefinition]:
        """Functions and methods of the top level."""
        yield from self.functions.values()
        for info in self.classes.values():
            yield from info.methods.values()


def _sets(method: FunctionNode) -> Iterator[tuple[str, bool]]:
    """The attributes of its own object that a method sets, each with whether always alike."""
    own = next((argument.arg for argument in method.args.args), None)
    nodes = list(ast.walk(method))
    varying = {n.arg for n in nodes if isinstance(n, ast.arg)}
    varying |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    alike = {
        target
        for node in nodes
        if isinstance(node, ast.Assign) and varying.isdisjoint(_names_in(node.value))
        for target in node.targets
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            holder = node.value.id if isinstance(node.value, ast.Name) else None
            yield from [(node.attr, node in alike)] if holder == own else []


def _names_in(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def index(module: Module, body: list[ast.stmt]) -> None:
    """Note the definitions of a module's top level, those under ``if`` and ``try`` included."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            module.functions[node.name] = FunctionDefinition(node.name, node, module)
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = class_info(module, node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            note_import(module.imports, module.stars, node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            module.assigns.update(assigned(node))
        else:
            for part in ("body", "orelse", "finalbody"):
                index(module, getattr(node, part, None) or [])
            for handler in getattr(node, "handlers", ()):
                index(module, handler.body)


def _pairs(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and what is put there: ``a, b = x, y`` are two."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def class_info(module: Module, node: ast.ClassDef) -> ClassDefinition:
    """What a class statement defines."""
    info = ClassDefinition(node.name, node, module)
    for item in node.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = FunctionDefinition(item.name, item, module, info)
            if any(_is_setter(one) for one in item.decorator_list):
                info.setters[item.name] = function
            info.methods.setdefault(item.name, function)
        elif isinstance(item, (ast.Assign, ast.AnnAssign)):
            info.assigns.update(assigned(item))
    return info


def _is_setter(decorator: ast.expr) -> bool:
    """``@name.setter``."""
    return isinstance(decorator, ast.Attribute) and decorator.attr == "setter"


def assigned(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment binds to its whole value."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if isinstance(target, ast.Name) and node.value is not None:
            yield target.id, node.value


def note_import(
    names: dict[str, tuple[str, str, int]],
    stars: list[tuple[str, int]],
    node: ast.Import | ast.ImportFrom,
) -> None:
    """``names[bound] = (module, attribute or "", level)``."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.split(".")[0]
            names[alias.asname or top] = (alias.name if alias.asname else top, "", 0)
        return
    for alias in node.names:
        if alias.name == "*":
            stars.append((node.module or "", node.level))
        else:
            names[alias.asname or alias.name] = (node.module or "", alias.name, node.level)
