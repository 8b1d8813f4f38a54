"""Blocks that one forward runs several times, each time recomputed in the backward."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ddpify.ranks.model import RankThing
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.rules.shared.syntax import dotted
from ddpify.site import Site

CHECKPOINT: Final = "torch.utils.checkpoint.checkpoint"

Asked = tuple[tuple[str, bool], ...]  # attributes of the module, and what they have to be


@dataclass(frozen=True, eq=False)
class _Reentrant:
    """A call, the attribute that it runs, whether a loop repeats it, and when it is made."""

    call: ast.Call
    block: str
    repeats: bool
    asked: Asked


# Layers that have parameters, whatever they are given.
_LAYERS: Final = re.compile(
    r"torch\.nn\.(Linear|Conv|LayerNorm|RMSNorm|Embedding|GRU|LSTM|RNN|MultiheadAttention|Transformer)"
)


def run_again(thing: RankThing) -> Iterator[tuple[Site, bool]]:
    """Where a method checkpoints the same ``self.block`` once more, reentrantly: in a loop that
    counts, not one over blocks, or in several places. And whether it surely does, or where an
    option asks for it."""
    for info in thing.cls.mro() if thing.cls is not None else ():
        layers = _layers(info)
        for method in info.methods.values():
            found = [one for one in _reentrant(method) if one.block in layers]
            answers = {one: _is_asked_for(thing, one) for one in found}
            found = [one for one in found if answers[one] is not False]
            times = Counter(one.block for one in found)
            for one in found:
                if one.repeats or times[one.block] > 1:
                    yield info.module.site(one.call), answers[one] is True


def _is_asked_for(thing: RankThing, one: _Reentrant) -> bool | None:
    """Whether the attributes that a method asks for are such; None where that is not known."""
    answers = [_holds(thing, name, wanted) for name, wanted in one.asked]
    return False if False in answers else None if None in answers else True


def _holds(thing: RankThing, name: str, wanted: bool) -> bool | None:
    """Whether an attribute is true, or false; of one that nobody sets, neither."""
    if name == "training" and name not in thing.attrs:
        return wanted
    value = thing.attrs.get(name)
    if value is not None:
        return bool(value.constant) is wanted if value.known else None
    init = thing.cls.method("__init__") if thing.cls is not None else None
    return _as_made(thing, init, name, wanted) if init is not None else False


def _as_made(thing: RankThing, init: FunctionDefinition, name: str, wanted: bool) -> bool | None:
    """The same of ``self.name = name`` in a constructor that was not read for its own sake."""
    stores = [one for one in ast.walk(init.node) if isinstance(one, ast.Assign)]
    sets = [one for one in stores if ast.unparse(one.targets[0]) == f"self.{name}"]
    given = sets[0].value if len(sets) == 1 else None
    if isinstance(given, ast.Name) and given.id in init.parameters and thing.call is not None:
        place = init.parameters.index(given.id)
        value = thing.call.arg(place - 1, given.id)
        if value is not None:
            return bool(value.constant) is wanted if value.known else None
        spec = init.node.args
        ordinary = dict(
            zip(reversed([one.arg for one in spec.args]), reversed(spec.defaults), strict=False)
        )
        keywords = dict(zip([one.arg for one in spec.kwonlyargs], spec.kw_defaults, strict=True))
        given = {**ordinary, **keywords}.get(given.id)
    return bool(given.value) is wanted if isinstance(given, ast.Constant) else False


def _layers(info: ClassDefinition) -> set[str]:
    """The attributes that the constructor makes of layers with parameters."""
    method = info.methods.get("__init__")
    stores = (one for one in ast.walk(method.node) if isinstance(one, ast.Assign)) if method else ()
    return {
        target.attr
        for one in stores
        for target in one.targets
        if isinstance(target, ast.Attribute)
        and any(_is_layer(info, x) for x in ast.walk(one.value))
    }


def _is_layer(info: ClassDefinition, node: ast.AST) -> bool:
    name = dotted(info.module, node.func) if isinstance(node, ast.Call) else None
    return name is not None and _LAYERS.match(name) is not None


def _reentrant(method: FunctionDefinition) -> Iterator[_Reentrant]:
    """The calls and their blocks, each with whether a loop repeats it, and the attributes of the
    module on which it depends; not under another condition."""
    body = method.node.body if isinstance(method.node, ast.FunctionDef) else []
    todo: list[tuple[ast.AST, bool, Asked]] = [(node, False, ()) for node in body]
    while todo:
        node, repeats, asked = todo.pop()
        name = _block(method, node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name:
            yield _Reentrant(node, name, repeats, asked)
        again = repeats or (isinstance(node, ast.For) and _counts(node.iter))
        if isinstance(node, (ast.If, ast.IfExp)):
            for held, holds in ((node.body, True), (node.orelse, False)):
                more = _attributes(node.test, holds)
                inside = held if isinstance(held, list) else [held]
                if more is not None:
                    todo += [(child, repeats, (*asked, *more)) for child in inside]
        elif not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.While)):
            todo += [(child, again, asked) for child in ast.iter_child_nodes(node)]


def _attributes(test: ast.expr, holds: bool) -> Asked | None:
    """What ``self.training and not self.plain`` asks of the module; None if that is not all."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _attributes(test.operand, not holds)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds:
        parts = [_attributes(one, True) for one in test.values]
        known = [one for one in parts if one is not None]
        return tuple(chain.from_iterable(known)) if len(known) == len(parts) else None
    own = isinstance(test, ast.Attribute) and ast.unparse(test.value) == "self"
    return ((test.attr, holds),) if isinstance(test, ast.Attribute) and own else None


def _counts(over: ast.expr) -> bool:
    """Whether it is ``range(self.repeats)``, and not one round."""
    if not isinstance(over, ast.Call) or ast.unparse(over.func) != "range":
        return False
    return ast.unparse(over) not in ("range(1)", "range(0, 1)")


def _block(method: FunctionDefinition, call: ast.Call) -> str:
    """``block`` of ``checkpoint(self.block, x, use_reentrant=True)``."""
    if dotted(method.module, call.func) != CHECKPOINT or not call.args:
        return ""
    given = {one.arg: one.value for one in call.keywords}.get("use_reentrant")
    reentrant = isinstance(given, ast.Constant) and given.value is True
    block = call.args[0]
    own = isinstance(block, ast.Attribute) and ast.unparse(block.value) == "self"
    return block.attr if isinstance(block, ast.Attribute) and own and reentrant else ""
