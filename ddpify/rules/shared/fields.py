"""What the classes of a project keep in ``self``: read from their text, for models are not run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.facts.tree import last_name
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.run import Run
from ddpify.ranks.words import canonical
from ddpify.rules.shared.parameters import LAYERS
from ddpify.rules.shared.wrapped import CONTAINERS
from ddpify.site import Site

_HOLDERS = CONTAINERS | {"torch.nn.ParameterList", "torch.nn.ParameterDict"}

_DESCRIBES = frozenset("shape size dtype device ndim dim numel".split())  # not what is in a tensor


@dataclass(frozen=True)
class ClassField:
    """``self.name`` at a place; ``value`` is what it is set to there."""

    name: str
    site: Site
    is_set: bool
    value: ast.expr | None = None


def fields_of(method: FunctionDefinition) -> list[ClassField]:
    """The attributes of its own object that a method reads or sets."""
    site = method.module.site
    return [
        ClassField(own(node), site(node), isinstance(node.ctx, ast.Store), value)
        for node, value in method.module.source.once(_attributes_of, method.node)
    ]


def _attributes_of(method: ast.AST) -> list[tuple[ast.Attribute, ast.expr | None]]:
    """The attributes of the object that a method names, each with what it is set to there."""
    nodes = list(ast.walk(method))
    values = {t: one.value for one in nodes if isinstance(one, ast.Assign) for t in one.targets}
    named = (one for one in nodes if isinstance(one, ast.Attribute) and own(one))
    return [(node, values.get(node)) for node in named]


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of an expression of names and attributes; empty for any other."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def qualified(module: Module, node: ast.AST) -> str:
    """The name under which a library or another file exports what is named here."""
    root, _, rest = dotted(node).partition(".")
    if root not in module.imports:
        return ""
    origin, attribute, _ = module.imports[root]
    return canonical(".".join(part for part in (origin, attribute, rest) if part))


def kept(cls: ClassDefinition, name: str) -> Iterator[tuple[Module, ast.expr]]:
    """The expressions assigned to ``self.name`` in a class and its bases."""
    for info in cls.mro():
        for method in info.methods.values():
            for one in fields_of(method):
                if one.name == name and one.value is not None:
                    yield info.module, one.value


def makers(cls: ClassDefinition, name: str) -> Iterator[list[str]]:
    """For each assignment to ``self.name``, the names of what is called for it, outermost first;
    the name of a library's function that is kept itself."""
    for module, value in kept(cls, name):
        calls = [one.func for one in ast.walk(value) if isinstance(one, ast.Call)]
        yield [qualified(module, one) for one in calls or [value]]


def called(method: FunctionDefinition) -> set[str]:
    """The last names of what a method calls."""
    calls = (node.func for node in ast.walk(method.node) if isinstance(node, ast.Call))
    return {*map(last_name, calls)}


def read_in(cls: ClassDefinition, method: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The attributes of ``self`` whose values a method reads, by itself or in methods it calls."""
    info = cls.method(method)
    if info is None or method in seen:
        return set()
    found = info.module.source.once(_read, info.node)
    below = (read_in(cls, name, seen | {method}) for name in found if cls.method(name))
    return {*found}.union(*below)


def _read(method: ast.AST) -> frozenset[str]:
    """The attributes of its own object whose values a method reads by itself."""
    nodes = [node for node in ast.walk(method) if isinstance(node, ast.Attribute)]
    described = {node.value for node in nodes if node.attr in _DESCRIBES}
    return frozenset(own(node) for node in nodes if node not in described)


def changed_later(cls: ClassDefinition) -> set[str]:
    """The attributes of ``self`` that a method other than the constructor sets or writes into."""
    methods = (m for info in cls.mro() for name, m in info.methods.items() if name != "__init__")
    return {name for method in methods for node in ast.walk(method.node) for name in _changed(node)}


def _changed(node: ast.AST) -> Iterator[str]:
    """``self.x = …``, ``self.x[i] = …``, ``self.x.copy_(…)``."""
    stored = isinstance(getattr(node, "ctx", None), ast.Store)
    if isinstance(node, (ast.Attribute, ast.Subscript)) and stored:
        yield own(node.value if isinstance(node, ast.Subscript) else node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield own(node.func.value) if node.func.attr.endswith("_") else ""


def read_elsewhere(method: FunctionDefinition) -> set[str]:
    """The names and attributes of its object that a method reads, but neither sets nor is given:
    those of its file or class. Not what it imports or calls."""
    nodes = list(ast.walk(method.node))
    called_here = {node.func for node in nodes if isinstance(node, ast.Call)}
    known = {node.arg for node in nodes if isinstance(node, ast.arg)} | {*method.module.imports}
    names = [node for node in nodes if isinstance(node, ast.Name) and node not in called_here]
    set_here = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    fields = fields_of(method)
    kept_here = {one.name for one in fields if one.is_set}
    read = {one.name for one in fields if not one.is_set} - kept_here - called(method)
    return ({node.id for node in names} - set_here - known) | read


def own(node: ast.AST) -> str:
    """``name`` of ``self.name``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    return ""


def holds_parameters(run: Run, cls: ClassDefinition, name: str, depth: int = 5) -> bool:
    """Whether ``self.name`` is surely a layer with parameters, or a parameter."""
    found = list(kept(cls, name))
    if any(_parametric(run, module, value, depth) for module, value in found):
        return True
    holders = (isinstance(v, ast.Call) and qualified(m, v.func) in _HOLDERS for m, v in found)
    return any(holders) and any(
        _parametric(run, module, part, depth - 1)
        for module, value in _appended(cls, name)
        for part in ast.walk(value)
    )


def _appended(cls: ClassDefinition, name: str) -> Iterator[tuple[Module, ast.expr]]:
    """What a class and its bases append to ``self.name``."""
    for info in cls.mro():
        for method in info.methods.values():
            for grown, value in info.module.source.once(_growing, method.node):
                if grown == name:
                    yield info.module, value


def _growing(method: ast.AST) -> list[tuple[str, ast.expr]]:
    """The attributes of its own object to which a method appends, each with what it does."""
    calls = (node for node in ast.walk(method) if isinstance(node, ast.Call))
    return [
        (own(call.func.value), value)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend")
        for value in call.args
    ]


def layers(run: Run, cls: ClassDefinition) -> set[str]:
    """The attributes that surely are layers with parameters."""
    return {name for name in _attributes(cls) if holds_parameters(run, cls, name)}


def classes_in(run: Run, classes: Iterable[ClassDefinition]) -> Iterator[ClassDefinition]:
    """These classes, and those of the objects that theirs keep."""
    todo, seen = list(classes), set[ClassDefinition]()
    while todo:
        cls = todo.pop()
        if cls not in seen:
            seen.add(cls)
            yield cls
            names = sorted(_attributes(cls))
            kept_by = (p for name in names for p in (*kept(cls, name), *_appended(cls, name)))
            todo += [c for module, value in kept_by for c in _made_in(run, module, value)]


def _made_in(run: Run, module: Module, value: ast.expr) -> Iterator[ClassDefinition]:
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            cls = _class(run, module, node.func, qualified(module, node.func))
            if cls is not None:
                yield cls


def _parametric(run: Run, module: Module, node: ast.AST, depth: int) -> bool:
    if not isinstance(node, ast.Call) or depth == 0:
        return False
    name = qualified(module, node.func)
    if name in LAYERS or (name in _HOLDERS and _any_below(run, module, node, depth)):
        return True
    cls = _class(run, module, node.func, name)
    return cls is not None and any(
        holds_parameters(run, cls, attribute, depth - 1) for attribute in _attributes(cls)
    )


def _any_below(run: Run, module: Module, node: ast.Call, depth: int) -> bool:
    below = (part for arg in node.args for part in ast.walk(arg))
    return any(_parametric(run, module, part, depth - 1) for part in below)


def _class(run: Run, module: Module, node: ast.AST, name: str) -> ClassDefinition | None:
    if not name:
        return module.classes.get(dotted(node))
    home, _, last = name.rpartition(".")
    return next((m.classes[last] for m in run.modules.values() if _is(m, home, last)), None)


def _is(module: Module, home: str, last: str) -> bool:
    return last in module.classes and _is_named(module, home)


def _is_named(module: Module, home: str) -> bool:
    return module.name == home or module.name.endswith(f".{home}")


def function_of(run: Run, module: Module, node: ast.AST) -> FunctionDefinition | None:
    """The function of the project that a name stands for in a file."""
    home, _, last = qualified(module, node).rpartition(".")
    if not last:
        return module.functions.get(dotted(node))
    named = (m.functions.get(last) for m in run.modules.values() if _is_named(m, home))
    return next((found for found in named if found is not None), None)


def _attributes(cls: ClassDefinition) -> set[str]:
    made = [info.methods["__init__"] for info in cls.mro() if "__init__" in info.methods]
    return {one.name for method in made for one in fields_of(method)}


def computing(cls: ClassDefinition, method: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The attributes of ``self`` that a method computes with, by itself or in methods it calls."""
    info = cls.method(method)
    if info is None or method in seen:
        return set()
    found: set[str] = set()
    loops = _iterated(info.node)
    for node in ast.walk(info.node):
        for name in _operands(node, loops):
            if cls.method(name) is None:
                found.add(name)
            elif isinstance(node, ast.Call):
                found |= computing(cls, name, seen | {method})
    return found


def _operands(node: ast.AST, loops: dict[str, str]) -> Iterator[str]:
    """``self.x(…)``, ``self.x[i](…)``, ``self.x @ y``, and ``part(…)`` for a part of ``self.x``."""
    if isinstance(node, ast.BinOp):
        yield from filter(None, (own(node.left), own(node.right)))
    if isinstance(node, ast.Call):
        called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        name = own(called) or (loops.get(called.id, "") if isinstance(called, ast.Name) else "")
        if name:
            yield name


def _iterated(function: ast.AST) -> dict[str, str]:
    """The variables of ``for part in self.x`` loops."""
    return {
        node.target.id: own(node.iter)
        for node in ast.walk(function)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and own(node.iter)
    }
