"""The layers of a model's class and where its code names them: read from the syntax."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ddpify.ranks.modules import ClassDefinition, Module
from ddpify.rules.shared.parameters import LAYERS
from ddpify.site import Site

# Ways to come at a submodule without its name.
_BY_OTHER_WAYS = frozenset(
    """children named_children modules named_modules parameters named_parameters _modules __dict__
    _parameters getattr vars get_submodule get_parameter apply add_module register_parameter
    register_module setattr""".split()
)


class Layers:
    """What ``__init__`` of a class makes, on every path; ``modules``: where it may be named."""

    def __init__(self, info: ClassDefinition, modules: Iterable[Module]) -> None:
        self._classes = list(info.mro())
        self._bases = info.external_bases()
        self._modules = modules
        self._forward = info.method("forward")

    @property
    def readable(self) -> bool:
        """Whether layers are come at by their names only."""
        if self._bases != {"torch.nn.Module"}:
            return False
        return not any(_indirect(one.node) for one in self._classes)

    @cached_property
    def made(self) -> list[tuple[str, Site]]:
        """The layers and where they are made."""
        return [pair for one in self._classes for pair in _made(one)]

    @cached_property
    def mentioned(self) -> Counter[str]:
        """How often each name is read, as an attribute or in a text."""
        return Counter(name for module in self._modules for name in _mentions(module.tree))

    def unused(self) -> Iterator[tuple[str, Site]]:
        """Layers that nothing names, or only methods that nothing names."""
        idle = Counter(name for node in self._idle() for name in _mentions(node))
        for name, site in self.made:
            if self.mentioned[name] == idle[name]:
                yield name, site

    def _idle(self) -> Iterator[ast.AST]:
        """The methods that Python or torch do not call by themselves and that nothing names."""
        for one in self._classes:
            for name, method in one.methods.items():
                own = name.startswith("_") or name in ("forward", "extra_repr")
                if not own and not self.mentioned[name]:
                    yield method.node

    def alternatives(self) -> Iterator[tuple[str, str, Site]]:
        """Two layers of which a forward takes one, as a condition says, and the condition."""
        forward = self._forward
        if forward is None or not self.made:
            return
        names = {name for name, _ in self.made}
        read = Counter(n for m in self._modules for n in _attributes(m.tree))
        given = {arg.arg for arg in forward.node.args.args}
        for test, arms in _forks(forward.node):
            if not _decided_by(test, given):
                continue
            held = [Counter(n for one in arm for n in _attributes(one)) for arm in arms]
            one, other = (sorted(n for n in names if arm[n] and arm[n] == read[n]) for arm in held)
            if one and other:
                yield one[0], other[0], forward.module.site(test)
                return

    def switched(self) -> Iterator[tuple[str, Switch]]:
        """Layers that a forward uses in one arm of an ``if aux:``, ``if self.aux:`` alone."""
        forward = self._forward
        if forward is None or not self.made:
            return
        read = Counter(n for m in self._modules for n in _attributes(m.tree))
        for test, arms in _forks(forward.node):
            switch = _switch(test)
            for layer in (name for name, _ in self.made) if switch is not None else ():
                used = [sum(n == layer for one in arm for n in _attributes(one)) for arm in arms]
                if switch is not None and sorted(used) == [0, read[layer]] and any(used):
                    on = switch.on if used[0] else not switch.on
                    yield layer, replace(switch, on=on, site=forward.module.site(test))


@dataclass(frozen=True)
class Switch:
    """What an ``if`` asks: a parameter, or an attribute of the object; used if it is ``on``."""

    name: str
    of_self: bool
    on: bool
    site: Site | None = None


def _switch(test: ast.expr) -> Switch | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _switch(test.operand)
        return replace(inner, on=not inner.on) if inner is not None else None
    if isinstance(test, ast.Name):
        return Switch(test.id, False, True)
    own = isinstance(test, ast.Attribute) and ast.unparse(test.value) == "self"
    return Switch(test.attr, True, True) if own and isinstance(test, ast.Attribute) else None


def _decided_by(test: ast.expr, given: set[str]) -> bool:
    """Whether a condition is about what the function is given, its object included."""
    if any(isinstance(node, ast.Call) for node in ast.walk(test)):
        return False
    return {node.id for node in ast.walk(test) if isinstance(node, ast.Name)} <= given


def _forks(node: ast.AST) -> Iterator[tuple[ast.expr, tuple[list[ast.stmt], list[ast.stmt]]]]:
    """The conditions of a function with their two arms; what follows a return is the second."""
    for parent in ast.walk(node):
        for field in ("body", "orelse"):
            block = getattr(parent, field, None)
            for number, one in enumerate(block if isinstance(block, list) else ()):
                if isinstance(one, ast.If) and isinstance(block, list):
                    rest = block[number + 1 :] if isinstance(one.body[-1], ast.Return) else []
                    yield one.test, (one.body, [*one.orelse, *rest])


def _indirect(node: ast.ClassDef) -> bool:
    names = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    names |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return not names.isdisjoint(_BY_OTHER_WAYS)


def _made(info: ClassDefinition) -> Iterator[tuple[str, Site]]:
    """Assignments of layers in ``__init__`` itself, not under a condition."""
    method = info.methods.get("__init__")
    for node in method.node.body if method and isinstance(method.node, ast.FunctionDef) else ():
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != "self":
            continue
        if qualified_call(info, node.value) in LAYERS:
            yield target.attr, info.module.site(node)


def qualified_call(info: ClassDefinition, node: ast.expr) -> str:
    """The library's name of what is called, read from the imports."""
    if not isinstance(node, ast.Call):
        return ""
    if any(k.arg == "requires_grad" for k in node.keywords):
        return ""
    name = ast.unparse(node.func)
    first, _, rest = name.partition(".")
    dotted, attribute, level = info.module.imports.get(first, ("", "", 0))
    if level or not dotted:
        return ""
    return ".".join(part for part in (dotted, attribute, rest) if part)


def _attributes(tree: ast.AST) -> Iterator[str]:
    """Attributes that are read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
            yield node.attr


def _mentions(tree: ast.AST) -> Iterator[str]:
    """Attributes that are read, and texts, which may name one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from node.value.replace(".", " ").split()
