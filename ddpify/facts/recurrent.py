"""The recurrent layer of a model that is handed a state and gives the next one.

It also says along which axis its input holds samples.

Along which axis the layers of a transformer take samples.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ddpify.facts import roles
from ddpify.facts.bodies import loaded, stored
from ddpify.facts.details import call_that_made
from ddpify.facts.events import Forward
from ddpify.facts.fresh import method_of
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import is_name
from ddpify.facts.values import NOTHING, Thing

RECURRENT = frozenset({"torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN"})
OF_RECURRENT = frozenset({"num_layers", "batch_first", "dropout", "bidirectional"})
# Layers that leave the axes before the last one alone.
# Of torch.nn.functional: one tensor of the shape of the input.
POINTWISE_FUNCTIONS = frozenset(
    f"torch.nn.functional.{name}"
    for name in ("log_softmax", "softmax", "sigmoid", "relu", "dropout")
)
POINTWISE = ("torch.nn.Embedding", "torch.nn.Dropout", "torch.nn.Linear")


@dataclass(frozen=True)
class Layer:
    """A recurrent layer: the ``axis`` of samples in the model's input, where that is seen."""

    axis: int | None


def takes_state(m: Machine, forward: Forward, name: str) -> bool:
    """Whether a call hands the state on: not to a model whose one tensor is no output and state."""
    call = m.tree(forward.call.site.path).expression(forward.call.site)
    given = (*call.args, *call.keywords) if isinstance(call, ast.Call) else ()
    info = method_of(forward.model, "forward")
    returned = [n.value for n in ast.walk(info.node) if isinstance(n, ast.Return)] if info else []
    single = bool(returned) and all(_is_tensor(info, value) for value in returned)
    return any(name in loaded(one) for one in given) and not single


def _is_tensor(info: FunctionInfo | None, value: ast.expr | None) -> bool:
    """``F.log_softmax(x, dim=-1)``: what it gives cannot be unpacked into an output and a state."""
    func = value.func if isinstance(value, ast.Call) else None
    if info is None or not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return False
    owner = info.module.globals.get(func.value.id, NOTHING)
    return bool(owner.things) and all(
        f"{thing.name}.{func.attr}" in POINTWISE_FUNCTIONS for thing in owner.things
    )


def layer_of(m: Machine, forward: Forward, name: str) -> Layer | None:
    """The recurrent layer that a model gives the states to, and gives back those of."""
    model = roles.whole(forward.model)
    info = method_of(model, "forward")
    call = m.tree(forward.call.site.path).expression(forward.call.site)
    if info is None or not isinstance(call, ast.Call):
        return None
    node = info.node
    places = [i for i, given in enumerate(call.args) if is_name(given, name)]
    if len(places) != 1 or isinstance(node, ast.Lambda) or len(node.args.args) <= places[0] + 1:
        return None
    if sum(name in loaded(given) for given in (*call.args, *call.keywords)) != 1:
        return None
    return _read(model, node.body, node.args.args[places[0] + 1].arg)


def _read(model: Thing, body: Sequence[ast.stmt], state: str) -> Layer | None:
    """Follow a ``forward`` to its one recurrent call, which takes the state and makes the next."""
    layer: Layer | None = None
    made: set[str] = set()
    pointwise = True
    for statement in body:
        if isinstance(statement, ast.Return):
            return layer if _gives_last(statement.value, made) else None
        if not isinstance(statement, (ast.Assign, ast.Expr)) or made & stored([statement]):
            return None
        if layer is not None:
            continue
        if state in loaded(statement):
            layer, made = _recurrent(model, statement, state, pointwise)
            if layer is None:
                return None
        elif isinstance(statement, ast.Assign):
            pointwise &= _is_pointwise(model, statement.value)
    return None


def _recurrent(
    model: Thing, statement: ast.Assign | ast.Expr, state: str, pointwise: bool
) -> tuple[Layer | None, set[str]]:
    """``out, state = self.lstm(x, state)``: the layer, and what the new state is called."""
    call, layers = statement.value, _called(model, statement.value)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    pair = target.elts if isinstance(target, ast.Tuple) else []
    if not layers or not all(map(_is_recurrent, layers)) or not isinstance(call, ast.Call):
        return None, set()
    if len(call.args) != 2 or not is_name(call.args[1], state) or len(pair) != 2:
        return None, set()
    straight = pointwise and _is_pointwise(model, call.args[0])
    axes = {axis_of(layer) for layer in layers}
    return Layer(axes.pop() if straight and len(axes) == 1 else None), stored([pair[1]])


def _is_recurrent(layer: Thing) -> bool:
    """Also ``getattr(nn, kind)(…, num_layers=2)(x, state)``: no other layer is called like that."""
    made = call_that_made(layer)
    other = made is not None and not made.star and made.kwargs.keys() & OF_RECURRENT
    return layer.name in RECURRENT or (layer.name == "torch.nn.*" and bool(other))


def _is_pointwise(model: Thing, value: ast.expr) -> bool:
    """Whether the axes of an input but the last are where they were."""
    if isinstance(value, ast.Name):
        return True
    layers = _called(model, value)
    if not layers or not isinstance(value, ast.Call):
        return False
    if any(layer.name not in POINTWISE for layer in layers):
        return False
    return all(_is_pointwise(model, argument) for argument in value.args)


def _gives_last(value: ast.expr | None, made: set[str]) -> bool:
    """Whether the last of what is returned is the new state, as it is."""
    last = value.elts[-1] if isinstance(value, ast.Tuple) and value.elts else None
    names = set(loaded(last)) if last is not None else set()
    return bool(names) and names <= made and isinstance(last, (ast.Name, ast.Tuple))


def _called(model: Thing, call: ast.expr | None) -> tuple[Thing, ...]:
    """The layers of the model of which one is called: ``self.layer(...)``."""
    func = call.func if isinstance(call, ast.Call) else None
    if not isinstance(func, ast.Attribute) or not is_name(func.value, "self"):
        return ()
    found = model.attrs.get(func.attr)
    return found.things if found is not None else ()


def axis_of(layer: Thing) -> int | None:
    """The axis along which a recurrent layer takes samples, where that is said."""
    made = call_that_made(layer)
    given = made.kwargs.get("batch_first") if made is not None and not made.star else None
    if made is None or made.star or len(made.args) > 4:
        return None
    if given is None:
        return 1
    return (0 if given.const else 1) if isinstance(given.const, bool) else None


# Each with the place of ``batch_first``, counted from the first argument.
_PLACES: Final = {
    "torch.nn.TransformerEncoderLayer": 6,
    "torch.nn.TransformerDecoderLayer": 6,
    "torch.nn.Transformer": 11,
}
_STACKS: Final = frozenset({"torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder"})
ATTENDS: Final = frozenset(_PLACES) | _STACKS


def attention_axis(layer: Thing) -> int | None:
    """The axis that ``batch_first`` says, of a stack that of its layers; else None."""
    made = call_that_made(layer)
    if made is None or made.star:
        return None
    if layer.name in _STACKS:
        given = made.arg(0, f"{'en' if 'Encoder' in layer.name else 'de'}coder_layer")
        inner = given.things if given is not None else ()
        axes = {attention_axis(one) if one.name in _PLACES else None for one in inner}
        return axes.pop() if len(axes) == 1 else None
    given = made.arg(_PLACES.get(layer.name, 0), "batch_first")
    if given is None:
        return 1
    return (0 if given.const else 1) if isinstance(given.const, bool) else None
