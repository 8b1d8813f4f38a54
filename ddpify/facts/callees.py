"""Which functions of the project a call in a model's method runs: layers that it keeps, methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpify.facts.fresh import method_of, qualified
from ddpify.facts.grown import MethodText, stored
from ddpify.facts.scopes import ClassInfo, FunctionInfo, ModuleInfo, functions_in
from ddpify.facts.values import Kind, Thing, Value

SELF = "self"
PLAIN = frozenset(
    {"range", "len", "int", "max", "min", "zip", "enumerate", "list", "tuple", "dict"}
)


@dataclass(frozen=True)
class Callee:
    """A function, the class that it is a method of, and the object where that is known."""

    info: FunctionInfo
    owner: ClassInfo | None = None
    model: Thing | None = None


@dataclass
class Callees:
    """What calls in one function run: ``None`` where that is not known, none of a library's."""

    target: Callee
    text: MethodText
    _asked: set[str] = field(default_factory=set)

    def unread(self, node: ast.expr) -> bool:
        """Whether it is not known what a call gives: of a tensor and of torch's layers a tensor."""
        if not isinstance(node, ast.Call) or self.of(node.func) is not None:
            return False
        if isinstance(node.func, ast.Attribute):
            return ast.unparse(node.func).startswith(f"{SELF}.")  # else a method of a tensor
        return not qualified(self.target.info, node.func).startswith("torch.")

    def of(self, func: ast.expr) -> list[Callee] | None:
        """The functions that ``func(...)`` may run."""
        match func:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._member(name)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return self._member(name)
            case ast.Subscript(value=ast.Name() as name):  # `heads = self.heads`
                return self.of(name)
            case ast.Name(id=name) if name in self.text.turns or name in self.text.bound:
                return self._local(name)
            case ast.Name(id=name) if name in self.target.info.module.globals:
                return _functions(self.target.info.module.globals[name])
        return None

    def _local(self, name: str) -> list[Callee] | None:
        """What a name is, which stands for each of ``self.layers`` in turn."""
        if name in self._asked:
            return None
        self._asked.add(name)
        values = (*self.text.turns.get(name, ()), *self.text.bound.get(name, ()))
        found = [self.of(value) for value in values]
        self._asked.discard(name)
        return None if None in found else [one for each in found for one in each or ()]

    def _member(self, name: str) -> list[Callee] | None:
        """A method, or the layers that are kept under a name."""
        owner, model = self.target.owner, self.target.model
        method = owner.lookup(name) if owner is not None else None
        if method is not None:
            return [Callee(t.info, owner, model) for t in _functions(method) or ()]
        kept = model.attrs.get(name) if model is not None else None
        known = [t for t in kept.things if isinstance(t.ref, ClassInfo)] if kept is not None else []
        if known:
            return [target for layer in known for target in _forward(layer)]
        return self._written(name)

    def _written(self, name: str) -> list[Callee] | None:
        """The layers that are made where they are put in ``self``."""
        classes = self.target.owner.mro() if self.target.owner is not None else []
        found = [
            _made(each.module, node)
            for each in classes
            for value in each.module.source.once(stored, each.node).get(name, ())
            for node in ast.walk(value)
            if isinstance(node, ast.Call)
        ]
        unknown = not found or any(one is None for one in found)
        return None if unknown else [target for one in found for target in one or ()]


def _made(module: ModuleInfo, made: ast.Call) -> list[Callee] | None:
    """What a call of an object runs that is made so; None of what a function makes."""
    root = made.func
    while isinstance(root, ast.Attribute):
        root = root.value
    name = root.id if isinstance(root, ast.Name) else ""
    things = module.globals[name].things if name in module.globals else ()
    if things and all(t.kind is Kind.EXTERNAL and t.name.startswith("torch") for t in things):
        return []
    if isinstance(made.func, ast.Name) and things and all(_classes(t) for t in things):
        return [target for thing in things for target in _of_class(thing)]
    return [] if name in PLAIN else None


def _classes(thing: Thing) -> bool:
    return isinstance(thing.ref, ClassInfo) and thing.kind is Kind.CLASS


def _of_class(thing: Thing) -> Iterator[Callee]:
    owner = thing.ref if isinstance(thing.ref, ClassInfo) else None
    forward = owner.lookup("forward") if owner is not None else None
    for target in (_functions(forward) or ()) if forward is not None else ():
        yield Callee(target.info, owner)


def _forward(layer: Thing) -> Iterator[Callee]:
    info, owner = method_of(layer, "forward"), layer.ref
    if info is not None and isinstance(owner, ClassInfo):
        yield Callee(info, owner, layer)


def _functions(value: Value) -> list[Callee] | None:
    infos = functions_in(value)
    return [Callee(info) for info in infos] if len(infos) == len(value.things) and infos else None
