"""One weight of a sharded model, by the way there: ``model.head.weight``, ``head = model.head``.

A model's ``__init__`` is not entered by the reading of two ranks; what it makes stands there.
"""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.modules import ClassDefinition

_OWN: Final = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


def sharding_of_weight(thing: RankThing) -> RankCall | None:
    """The call that sharded the model whose weight a thing is; None for anything else."""
    way: list[str] = []
    while thing.kind == "attribute" and thing.receiver is not None:
        way.insert(0, thing.name.rpartition(".")[2])
        thing = thing.receiver
    made = thing.cls or (thing.name if thing.kind == "result" else "")
    return thing.sharded if thing.sharded and way and _is_weight(made, way) else None


def _is_weight(made: ClassDefinition | str, way: list[str]) -> bool:
    """Whether the attributes lead from an object of a class to a parameter, by what is written.

    Not to a buffer of a layer, nor to what a loss weighs its classes with.
    """
    for name in way[:-1]:
        made = made if isinstance(made, str) else _kept(made, name)
    if isinstance(made, ClassDefinition):
        return _kept(made, way[-1]) in _OWN
    layer = made.startswith("torch.nn.") and not made.endswith("Loss")
    return layer and ("weight" in way[-1] or "bias" in way[-1])


def _kept(info: ClassDefinition, name: str) -> ClassDefinition | str:
    """What ``self.name = …(…)`` in ``__init__`` makes: a class of the file or of a library."""
    method = info.method("__init__")
    for node in ast.walk(method.node) if method is not None else ():
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if f"self.{name}" in map(ast.unparse, node.targets):
            return _class(info, ast.unparse(node.value.func))
    return ""


def _class(info: ClassDefinition, name: str) -> ClassDefinition | str:
    if name in info.module.classes:
        return info.module.classes[name]
    first, _, rest = name.partition(".")
    dotted, attribute, level = info.module.imports.get(first, ("", "", 0))
    return "" if level else ".".join(part for part in (dotted, attribute, rest) if part)
