"""Single parts of a model that every forward calls as a whole: what may be sharded alone by size.

``fully_shard`` gathers the weights of a part when it is called, and once more for its backward,
which the tensors in its output tell: no part whose weights are read from outside, or that returns
an object of the project, is one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.blocks import blocks, is_always_made, is_called_once
from ddpify.facts.constructed import WITH_PARAMETERS, constructors
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Kind, Thing


def units(facts: Facts, given: Iterable[Thing]) -> tuple[str, ...]:
    """The paths from a model to such parts, inner ones first: ``encoder.embedding``, ``encoder``.

    Of several of which it may be any, those that all have.
    """
    models = [*given]
    found = [tuple(_parts(facts, model, "", ())) for model in models]
    alike = [path for path in found[0] if all(path in one for one in found)] if found else []
    return tuple(path for path in alike if path not in blocks(facts, models))


def _parts(facts: Facts, one: Thing, path: str, around: tuple[Thing, ...]) -> Iterator[str]:
    info = one.ref
    if not isinstance(info, ClassInfo) or one in around:
        return
    for name, value in one.attrs.items():
        parts = value.of(Kind.MODEL)
        single = len(parts) == len(value.things) == 1 and is_always_made(info, name)
        if not single or not is_called_once(info, name, name) or _is_tied(info, name):
            continue
        yield from _parts(facts, parts[0], f"{path}{name}.", (*around, one))
        if _is_unit(facts, parts[0]):
            yield f"{path}{name}"


def _is_tied(info: ClassInfo, name: str) -> bool:
    """Whether a constructor has weights of it elsewhere: ``self.head.weight = self.wte.weight``."""
    nodes = (n for init in constructors(info) for n in ast.walk(init) if isinstance(n, ast.Assign))
    parts = (one for n in nodes for one in (*n.targets, n.value))
    return any(isinstance(one, ast.Attribute) and _begins(one.value, name) for one in parts)


def _begins(node: ast.expr, name: str) -> bool:
    return f"{ast.unparse(node)}.".startswith(f"self.{name}.")


def _is_unit(facts: Facts, part: Thing) -> bool:
    if part.name in WITH_PARAMETERS or part.name == "torch.nn.Sequential":
        return True
    if not isinstance(part.ref, ClassInfo):
        return False
    return not any(_gives_object(facts, info) for info in part.ref.mro())


def _gives_object(facts: Facts, info: ClassInfo) -> bool:
    """Whether a forward makes an object of the project, which may be what it returns."""
    nodes = (n for tree in facts.trees.values() for n in tree.nodes())
    own = {n.name for n in nodes if isinstance(n, ast.ClassDef)}
    methods = (n for n in info.node.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    calls = (n for one in methods for n in ast.walk(one) if isinstance(n, ast.Call))
    return any(ast.unparse(call.func).rpartition(".")[2] in own for call in calls)
