"""Modules that train nothing: a criterion written as ``nn.Module`` is read as the function it is.

They have no parameters, or a network that is frozen where it is made. A model's forward stays
closed, since the wrapper is what is called; nothing wraps a module that has nothing to train.
"""

from __future__ import annotations

import ast

from ddpify.facts.details import OpenForward
from ddpify.facts.joining import parts_of
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value

PLAIN_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.Module", "builtins.object"})
# Ways to get parameters that reading `__init__` may not show.
HIDDEN = frozenset("Parameter register_parameter register_module add_module setattr".split())
LAYERS = frozenset(
    f"torch.nn.{name}"
    for name in """Sigmoid Softmax LogSoftmax LogSigmoid Softplus ReLU LeakyReLU GELU SiLU ELU Tanh
    Identity Flatten Unflatten Upsample Dropout MaxPool1d MaxPool2d AvgPool1d AvgPool2d
    AdaptiveAvgPool2d Unfold CosineSimilarity PairwiseDistance""".split()
)
TENSORS = ("torch.", "numpy.", "math.")


def is_function(m: Machine, info: ClassInfo, thing: Thing) -> bool:
    """Whether a module, whose ``__init__`` has run, has nothing to train and a forward to read."""
    if info.lookup("forward") is None or not set(info.external_bases()) <= PLAIN_BASES:
        return False
    if any(_hides(base.node) for base in info.mro()):
        return False
    frozen = _frozen(m)
    left = [v for v in thing.attrs.values() if not v.things or not set(v.things) <= frozen]
    return all(_has_none(thing, value) for value in left)


def _frozen(m: Machine) -> set[Thing]:
    """The networks that are frozen: ``for p in net.parameters(): p.requires_grad = False``."""
    found: set[Thing] = set()
    for access in m.events.accesses("requires_grad"):
        tree, made = m.tree(access.where.statement.path), access.where.statement
        owner = _all_of(tree, tree.statement(made)) if access.stored else None
        value = m.values.get(tree.site(owner)) if owner and not access.where.guards else None
        if value is not None and len(value.things) == 1:
            found.update(value.things)
    return found


def _all_of(tree: Tree, made: ast.stmt | None) -> ast.expr | None:
    """Of which network a loop freezes all parameters, with this statement."""
    loop = tree.parent(made) if made is not None else None
    over = loop.iter if isinstance(loop, ast.For) else None
    value = made.value if isinstance(made, ast.Assign) else None
    if not isinstance(value, ast.Constant) or value.value is not False:
        return None
    taken = over.func if isinstance(over, ast.Call) and not over.args else None
    return taken.value if isinstance(taken, ast.Attribute) and taken.attr == "parameters" else None


def open_up(thing: Thing) -> None:
    """Read calls of the module as calls of its forward, and its layers as they are called."""
    thing.kind = Kind.CRITERION
    thing.describe(OpenForward())
    for value in thing.attrs.values():
        for layer in value.of(Kind.MODEL):
            layer.part_of = None


def _hides(node: ast.ClassDef) -> bool:
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    return any(ast.unparse(call.func).rpartition(".")[2] in HIDDEN for call in calls)


def _has_none(owner: Thing, value: Value, depth: int = 3) -> bool:
    return all(_is_bare(owner, thing, depth) for thing in value.things)


def _is_bare(owner: Thing, thing: Thing, depth: int) -> bool:
    if thing.part_of is owner and thing.kind is Kind.UNKNOWN:
        return True  # a method of nn.Module, such as `register_buffer`
    if thing.kind in (Kind.MODEL, Kind.WRAPPED):
        return thing.name in LAYERS
    if thing.kind is Kind.UNKNOWN:
        return thing.name.startswith(TENSORS)
    if thing.kind in (Kind.TUPLE, Kind.DICT, Kind.ITERATOR):
        return depth > 0 and all(_has_none(owner, part, depth - 1) for part in parts_of(thing))
    return thing.kind is not Kind.PARAMETERS
