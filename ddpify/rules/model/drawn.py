"""Whether the weights of a model are those that torch draws when its layers are made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankThing
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.rules.shared.fields import qualified
from ddpify.rules.shared.parameters import LAYERS
from ddpify.rules.shared.wrapped import CONTAINERS

# What fills a tensor with random numbers: methods of tensors and layers, functions of `nn.init`.
DRAWS: Final = frozenset(
    """normal_ uniform_ trunc_normal_ xavier_uniform_ xavier_normal_ xavier_uniform xavier_normal
    kaiming_uniform_ kaiming_normal_ kaiming_uniform kaiming_normal orthogonal_ orthogonal sparse_
    random_ log_normal_ exponential_ cauchy_ reset_parameters""".split()
)
_CONSTANT: Final = ("Norm", "Parameter", "PReLU")  # layers whose weights are not drawn
_MAKES: Final = frozenset(
    f"torch.{name}" for name in "rand randn empty zeros ones tensor arange full".split()
)
_BUILTIN: Final = frozenset("super range len list tuple zip enumerate int isinstance".split())


def is_drawn(thing: RankThing) -> bool:
    """Whether a layer, or a model of such, surely has weights that were drawn."""
    call = thing.call
    if thing.kind == "result" and call is not None:
        if thing.name in CONTAINERS:
            return any(is_drawn(part) for value in call.args for part in value.things)
        return _draws(thing.name)
    return thing.kind == "instance" and thing.cls is not None and _makes_drawn(thing.cls)


def only_keeps(cls: ClassDefinition) -> bool:
    """Whether a constructor does nothing with the models that it is given, but keeps them."""
    method = cls.method("__init__")
    nodes = list(ast.walk(method.node)) if method is not None else []
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    put = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
    own = all(isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self" for one in put)
    return method is not None and called <= {"super", "super().__init__"} and own


def _draws(name: str) -> bool:
    return name in LAYERS and not any(word in name for word in _CONSTANT)


def _makes_drawn(cls: ClassDefinition) -> bool:
    """Whether the constructor makes layers, and neither it nor what it calls sets their weights."""
    todo, seen = list(_constructors(cls)), set[FunctionDefinition]()
    drawn = False
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if any(isinstance(node, (ast.With, ast.Global)) for node in ast.walk(one.node)):
            return False  # `with torch.no_grad(): self.weight[0] = 1`, `with fork_rng():`
        for node in (n for n in ast.walk(one.node) if isinstance(n, ast.Call)):
            name, below = qualified(one.module, node.func), list(_below(one, cls, node))
            drawn = drawn or _draws(name)
            if not below and not _is_harmless(name, node):
                return False
            todo += below
    return drawn and cls.external_bases() == {"torch.nn.Module"}


def _constructors(cls: ClassDefinition) -> Iterator[FunctionDefinition]:
    return (info.methods["__init__"] for info in cls.mro() if "__init__" in info.methods)


def _below(
    one: FunctionDefinition, cls: ClassDefinition, call: ast.Call
) -> Iterator[FunctionDefinition]:
    """The functions of the same file that a call enters or hands on: ``self.apply(init)``."""
    for node in (call.func, *call.args):
        if isinstance(node, ast.Attribute):
            method = cls.method(node.attr)
            yield from (method,) if method is not None else ()
        elif isinstance(node, ast.Name):
            if node.id in one.module.functions:
                yield one.module.functions[node.id]
            elif node.id in one.module.classes:
                yield from _constructors(one.module.classes[node.id])


def _is_harmless(name: str, call: ast.Call) -> bool:
    """Whether a call sets no weights, or draws them; biases may be set."""
    func = call.func
    if not name:
        method = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        return method in DRAWS | _BUILTIN | {"__init__", "append"} or _is_of_bias(func)
    if name.startswith("torch.nn.init."):
        return name.rpartition(".")[2] in DRAWS or any(map(_is_of_bias, call.args[:1]))
    return name.startswith("torch.nn.") or name in _MAKES or name.startswith("math.")


def _is_of_bias(node: ast.AST) -> bool:
    """``layer.bias``, ``layer.bias.data.zero_``"""
    return any(isinstance(one, ast.Attribute) and one.attr == "bias" for one in ast.walk(node))
