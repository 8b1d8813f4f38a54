"""Whether the states that a project writes lie on a GPU: told from each of its ``torch.save``.

A file that is read was mostly written by another program of the project, which no run of this one
shows: so all its files are asked, by what stands in the function that writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from ddpify.ranks.imports import Modules
from ddpify.ranks.modules import FunctionDefinition, Module
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import dotted

_SAVE: Final = "torch.save"
_WRITTEN: Final = re.compile(r"\bsave\s*\(")
_LIBRARY_S: Final = re.compile(r"\bModelCheckpoint\(|\b[Aa]ccelerator\.save(?:_model|_state)?\(")
_OPTIMIZERS: Final = re.compile(r"optim|sched|scaler|(^|_)opt(_|$)", re.IGNORECASE)
_DEPTH: Final = 4
_CALLERS: Final = 2
Scope = FunctionDefinition | None


class Lies(Enum):
    """Where the tensors of a state lie."""

    CPU = "on the CPU"
    GPU = "where training had them"
    NOWHERE = "there are none"


def written_states(run: Run, models_only: bool) -> Lies:
    """Where the states lie that the project writes; ``models_only``: none of optimizers are asked
    about."""
    if run.project is None or "lightning" in run.frameworks:
        return Lies.GPU
    found = run.project.answer(_of_models if models_only else _of_all)
    if Lies.GPU in found:
        return Lies.GPU
    return Lies.CPU if Lies.CPU in found else Lies.NOWHERE


def _of_models(project: Modules) -> frozenset[Lies]:
    return frozenset(_in_project(project, True))


def _of_all(project: Modules) -> frozenset[Lies]:
    return frozenset(_in_project(project, False))


def _in_project(project: Modules, models_only: bool) -> Iterator[Lies]:
    for file, text in sorted(project.words.items()):
        if _LIBRARY_S.search(text):
            yield Lies.GPU
        module = project.load(file) if _WRITTEN.search(text) else None
        if module is not None and not module.ours:
            yield from _in_module(_States(project, models_only), module)


def _in_module(states: _States, module: Module) -> Iterator[Lies]:
    for scope, node in _calls(module):
        if dotted(module, node.func) == _SAVE:
            given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "obj")]
            yield from (lies for one in given for lies in states.of(module, scope, one, _CALLERS))


def _calls(module: Module) -> Iterator[tuple[Scope, ast.Call]]:
    """The calls of a file, each with the function in which it stands."""
    once = module.source.once
    inner: dict[ast.AST, FunctionDefinition] = {}
    for info in module.all_functions():  # those within come after those around them
        inner.update((node, info) for node in once(_calls_in, info.node))
    yield from ((inner.get(node), node) for node in once(_calls_in, module.tree))


def _calls_in(around: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(around) if isinstance(node, ast.Call)]


class _States:
    """Where the states lie that an expression holds."""

    def __init__(self, project: Modules, models_only: bool) -> None:
        self._project = project
        self._models_only = models_only

    def of(self, module: Module, scope: Scope, node: ast.expr, callers: int) -> Iterator[Lies]:
        around = scope.node if scope is not None else module.tree
        for part in _parts(around, node, _DEPTH):
            yield from self._of_part(module, around, part)
            if isinstance(part, ast.Name) and scope is not None and part.id in scope.parameters:
                given = [*self._given(scope, part.id, callers)]
                yield from given or ([Lies.GPU] if part is node and callers == _CALLERS else [])

    def _of_part(self, module: Module, around: ast.AST, part: ast.expr) -> Iterator[Lies]:
        owners = [one for one in _owners(part) if not (self._models_only and _is_optimizer(one))]
        if _goes_to_cpu(part) or self._is_brought(module, part):
            yield Lies.CPU
        elif owners:
            moved = all(_is_moved(around, owner) for owner in owners)
            yield Lies.CPU if moved else Lies.GPU
        elif isinstance(part, ast.Starred):
            yield Lies.GPU

    def _is_brought(self, module: Module, part: ast.expr) -> bool:
        """``to_cpu(net.state_dict())``: a function of the project brings it there."""
        for name in filter(None, (_named(module, node) for node in ast.walk(part))):
            found = module.functions.get(name) or self._imported(name)
            if found is not None and any(map(_goes_to_cpu, ast.iter_child_nodes(found.node))):
                return True
        return False

    def _imported(self, name: str) -> FunctionDefinition | None:
        files = (f for f, text in sorted(self._project.words.items()) if f"def {name}(" in text)
        loaded = (one for one in map(self._project.load, files) if one is not None)
        return next((one.functions[name] for one in loaded if name in one.functions), None)

    def _given(self, scope: FunctionDefinition, name: str, callers: int) -> Iterator[Lies]:
        """What the callers of a function give for a parameter."""
        place = scope.parameters.index(name) - (scope.owner is not None)
        called = re.compile(rf"\b{re.escape(scope.name)}\s*\(")
        for file, text in sorted(self._project.words.items()) if callers else ():
            module = self._project.load(file) if called.search(text) else None
            if module is None:
                continue
            for around, node in _calls(module):
                named = ast.unparse(node.func).rpartition(".")[2] == scope.name
                for one in _arguments(node, place, name) if named else ():
                    yield from self.of(module, around, one, callers - 1)


def _named(module: Module, node: ast.AST) -> str:
    """``to_cpu`` of ``to_cpu(x)`` and ``utils.to_cpu(x)``, where that is no method."""
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Name):
        return func.id
    base = func.value if isinstance(func, ast.Attribute) else None
    known = isinstance(base, ast.Name) and base.id in module.imports
    return func.attr if known and isinstance(func, ast.Attribute) else ""


def _arguments(node: ast.Call, place: int, name: str) -> Sequence[ast.expr]:
    named = [one.value for one in node.keywords if one.arg == name]
    return named or node.args[place : place + 1]


def _parts(around: ast.AST, node: ast.expr, depth: int) -> Iterator[ast.expr]:
    """What is held by an expression, names followed to what the function binds them to."""
    held: list[ast.expr] = []
    if isinstance(node, ast.Dict):
        held = node.values
    elif isinstance(node, (ast.List, ast.Tuple)):
        held = node.elts
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and node.keywords:
        held = [one.value for one in node.keywords]
    elif isinstance(node, ast.Name):
        held = [*_bound(around, node.id)]
    if not held or not depth:
        yield node
    for one in held if depth else ():
        yield from _parts(around, one, depth - 1)


def _bound(around: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a function assigns to a name, or puts into it by a key."""
    for node in (one for one in ast.walk(around) if isinstance(one, ast.Assign)):
        for target in node.targets:
            base = target.value if isinstance(target, ast.Subscript) else target
            again = isinstance(node.value, ast.Name) and node.value.id == name
            if isinstance(base, ast.Name) and base.id == name and not again:
                yield node.value


def _owners(node: ast.expr) -> list[ast.expr]:
    """The objects whose ``state_dict()`` is in an expression."""
    return [
        one.func.value
        for one in ast.walk(node)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
        if one.func.attr == "state_dict"
    ]


def _is_optimizer(owner: ast.expr) -> bool:
    """By its name, since nothing else of it stands there."""
    return _OPTIMIZERS.search(ast.unparse(owner).rpartition(".")[2]) is not None


def _goes_to_cpu(node: ast.AST) -> bool:
    """``{k: v.cpu() for k, v in state.items()}``, ``net.to("cpu").state_dict()``"""
    return any(isinstance(one, ast.Call) and _is_cpu(one) for one in ast.walk(node))


def _is_cpu(call: ast.Call) -> bool:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    given = [*call.args, *(one.value for one in call.keywords if one.arg == "device")]
    said = (one.value for arg in given for one in ast.walk(arg) if isinstance(one, ast.Constant))
    return method == "cpu" or (method == "to" and "cpu" in said)


def _is_moved(around: ast.AST, owner: ast.expr) -> bool:
    """Whether the function has brought an object there before: ``net.cpu()``, ``net = net.cpu()``,
    and what it is part of."""
    whole = ast.unparse(owner)
    for node in ast.walk(around):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_cpu(node):
            base = ast.unparse(node.func.value)
            if whole == base or whole.startswith(f"{base}."):
                return True
    bound = _bound(around, owner.id) if isinstance(owner, ast.Name) else ()
    return any(map(_goes_to_cpu, bound))
