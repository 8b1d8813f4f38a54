"""What a program does with the weights of a model outside of its forward: shards, once sharded."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from enum import Enum
from typing import Final

from ddpify.facts.events import Access, Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo, FunctionInfo, Loop
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.rules.shared.shards import Shards
from ddpify.source import Site

# What is the same of shards: it asks for names, shapes and numbers, or goes entry by entry.
_ASKS: Final = frozenset(
    """parameters named_parameters modules named_modules children named_children buffers
    named_buffers numel nelement dim ndim size element_size stride is_floating_point requires_grad_
    train eval zero_grad state_dict load_state_dict to cuda cpu float append extend add items
    values keys update get setdefault add_param_group step unscale_ startswith endswith
    detach clone get_submodule format join""".split()
)
_BY_ENTRY: Final = frozenset(
    "clamp_ clamp_min_ clamp_max_ mul_ div_ add_ sub_ lerp_ zero_ fill_ neg_ data".split()
)
# Optimizers that step entry by entry: of torch 2.13's, Muon trains something else on shards, and
# Adafactor and Rprop end with an error (measured).
BY_ENTRY: Final = frozenset(
    f"torch.optim.{name}"
    for name in "SGD Adam AdamW NAdam RAdam Adamax Adagrad RMSprop Adadelta ASGD".split()
)
CLIPS: Final = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
_FUNCTIONS: Final = (
    *(f"builtins.{name}" for name in dir(builtins)),
    *CLIPS,
    "torch.optim.",
    "torch.utils.data.",
    "torch.nn.utils.clip_grad_value_",
    "torch.nn.utils.clip_grad.clip_grad_value_",
    "torch.no_grad",
    "torch.save",
    "torch.amp.",
    "torch.cuda.amp.",
    "torch.autocast",
    "itertools.",
    "collections.",
    "ddpify.runtime.",
)
_WEIGHTS: Final = frozenset({"weight", "bias", "data", "grad"})
# What makes numbers of weights that a method has got from `parameters()`.
_OF_TENSORS: Final = frozenset(
    """norm pow square abs item sum mean std var copy_ add_ sub_ lerp_ numpy cpu tolist new_zeros
    new_ones new_full new_empty new_tensor new""".split()
)


def used(facts: Facts) -> Iterator[Call]:
    """Calls that are given weights, and for which shards are something else."""
    others = {forward.call.site for forward in facts.forwards}
    others |= {effect.call.site for effect in facts.effects}  # what is made of weights is asked
    others |= {call.site for call, _ in facts.sinks}
    norms = {thing for call in facts.named(*CLIPS) for thing in call.result.things}
    shards = Shards.of(facts)
    for call in facts.calls:
        values = (call.receiver, *call.args, *call.kwargs.values())
        given = [v for v in values if v is not None and shards.are(v, call.order)]
        if call.site in others or call.target is not None or not given:
            continue
        if all(not norms.isdisjoint(v.all_deps()) for v in given):
            continue  # a norm of all, which is whole
        if not (_is_read(facts, call) or _is_known(call) or method_of(call) or part_of(call)):
            yield call


def _is_read(facts: Facts, call: Call) -> bool:
    """Whether it makes, or calls, an object of the project, and is entered."""
    called = facts.values.get(call.callee, NOTHING).of(Kind.CLASS, Kind.INSTANCE)
    return any(isinstance(thing.ref, ClassInfo) for thing in called)


def _is_known(call: Call) -> bool:
    name = call.name.rpartition(".")[2]
    if call.name.startswith(_FUNCTIONS):
        return True
    if call.receiver is None or not call.name.startswith("."):
        return False
    return name in _ASKS or (name in _BY_ENTRY and all(map(_is_number, call.args)))


def _is_number(value: Value) -> bool:
    """Whether it goes with shards entry by entry: a number, or another shard."""
    return not value.dep(Kind.FORWARD, Kind.BATCH, Kind.RANDOM)


def own_optimizers(facts: Facts) -> Iterator[Call]:
    """Where an optimizer of a class of the project's own is made: SAM looks at a norm of all."""
    for call in facts.calls:
        for thing in facts.values.get(call.callee, NOTHING).of(Kind.CLASS):
            bases = thing.ref.external_bases() if isinstance(thing.ref, ClassInfo) else ()
            if any(base.endswith(".Optimizer") for base in bases):
                yield call


def unshardable(facts: Facts) -> Iterator[tuple[Site, str]]:
    """Parameters that ``fully_shard`` does not take, and why."""
    for tree in facts.trees.values():
        for node in ast.walk(tree.module):
            made = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Parameter")
            if not made or not isinstance(node, ast.Call) or not node.args:
                continue
            if any(getattr(n, "attr", "") in ("weight", "bias") for n in ast.walk(node.args[0])):
                yield tree.site(node), "a parameter that is a view of another"
            elif _is_scalar(node.args[0]):
                yield tree.site(node), "a parameter without a dimension"


def _is_scalar(node: ast.expr) -> bool:
    """``torch.tensor(0.07)``, ``torch.ones([]) * 2``."""
    if isinstance(node, ast.BinOp):
        return _is_scalar(node.left) or _is_scalar(node.right)
    if not isinstance(node, ast.Call) or not node.args:
        return False
    name, first = ast.unparse(node.func), node.args[0]
    empty = isinstance(first, (ast.List, ast.Tuple)) and not first.elts
    number = isinstance(first, (ast.Constant, ast.UnaryOp)) and name.endswith(".tensor")
    return number or (empty and name.startswith("torch."))


def shown_norms(facts: Facts) -> Iterator[Call]:
    """Calls that clip gradients and whose norm goes on."""
    for call in facts.named(*CLIPS):
        tree = facts.tree(call.site)
        node = tree.expression(call.site)
        if node is None or not isinstance(tree.parent(node), ast.Expr):
            yield call


def stored(facts: Facts) -> Iterator[Access]:
    """Assignments to what weights are: ``p.data = …``, ``p.grad = …``."""
    shards = Shards.of(facts)
    for access in facts.accesses if shards.since else ():
        weight = access.attribute in _WEIGHTS or _is_layer(access)
        cleared = access.attribute == "grad" and _is_none(facts, access)
        if access.stored and weight and not cleared and shards.are(access.base, access.order):
            yield access


def _is_none(facts: Facts, access: Access) -> bool:
    """``p.grad = None``."""
    made = facts.tree(access.base_site).statement(access.base_site)
    return isinstance(made, ast.Assign) and ast.unparse(made.value) == "None"


def _is_layer(access: Access) -> bool:
    """Whether a model has a layer of that name."""
    models = access.base.of(Kind.WRAPPED, Kind.MODEL)
    inner = [one for t in models for one in (t, *(t.inner.things if t.inner is not None else ()))]
    return any(one.attrs.get(access.attribute, NOTHING).of(Kind.MODEL) for one in inner)


# -- methods and parts of a sharded model --------------------------------------------------------


def method_of(call: Call) -> FunctionInfo | None:
    """The method of the project's class that is called on a sharded model."""
    owner = owner_of(call)
    return next(_methods(owner, call.name.rpartition(".")[2]), None) if owner is not None else None


def owner_of(call: Call) -> ClassInfo | None:
    """The class of the sharded model, or of a part of one, that has the method that is called."""
    name = call.name.rpartition(".")[2]
    for thing in (call.receiver or NOTHING).of(Kind.WRAPPED, Kind.MODEL):
        for one in (thing, *(thing.inner.things if thing.inner is not None else ())):
            if isinstance(one.ref, ClassInfo) and next(_methods(one.ref, name), None) is not None:
                return one.ref
    return None


def part_of(call: Call) -> bool:
    """Whether a layer of a sharded model is called from outside of it."""
    name = call.name.rpartition(".")[2]
    for thing in (call.receiver or NOTHING).of(Kind.WRAPPED):
        for inner in thing.inner.things if thing.inner is not None else ():
            if inner.attrs.get(name, NOTHING).of(Kind.MODEL, Kind.CRITERION):
                return True
    return False


class LayerUse(Enum):
    """What a method of a model does with its layers."""

    NOTHING = "nothing, or it calls the model itself"
    LAYERS = "calls them, as a forward does"
    UNCLEAR = "looks at their weights, or both"


def use_of(info: FunctionInfo, owner: ClassInfo) -> LayerUse:
    """What a method does, by its text and that of the methods that it calls."""
    return _use(info, owner, ())


def _use(info: FunctionInfo, owner: ClassInfo, around: tuple[FunctionInfo, ...]) -> LayerUse:
    uses, called = {LayerUse.NOTHING}, set[ast.AST]()
    for node in ast.walk(info.node):
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            called.add(node.func)
            uses.add(_of_call(node.func, owner, (*around, info)))
        elif _is_self_call(node) and around:
            uses.add(LayerUse.UNCLEAR)
    weights = (n for n in ast.walk(info.node) if isinstance(n, ast.Attribute) and n not in called)
    if any(one.attr in _WEIGHTS and _from_self(one.value) for one in weights):
        uses.add(LayerUse.UNCLEAR)
    whole = any(_is_self_call(node) for node in ast.walk(info.node))
    if LayerUse.UNCLEAR in uses or (LayerUse.LAYERS in uses and whole):
        return LayerUse.UNCLEAR
    return LayerUse.LAYERS if LayerUse.LAYERS in uses else LayerUse.NOTHING


def _of_call(function: ast.expr, owner: ClassInfo, around: tuple[FunctionInfo, ...]) -> LayerUse:
    if not isinstance(function, ast.Attribute):
        return LayerUse.LAYERS if _from_self(function) else LayerUse.NOTHING  # self.layers[0](x)
    name = function.attr
    if isinstance(function.value, ast.Name) and function.value.id == "self":
        method = next(iter(_methods(owner, name)), None)
        if method is not None:
            return _use(method, owner, around) if method not in around else LayerUse.NOTHING
        return LayerUse.NOTHING if name in _ASKS else LayerUse.LAYERS
    if _from_self(function.value):
        return LayerUse.NOTHING if name in _ASKS else LayerUse.LAYERS
    return LayerUse.UNCLEAR if name in _OF_TENSORS else LayerUse.NOTHING


def _from_self(node: ast.AST) -> bool:
    """``self.encoder.layers[0]``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return True
        node = node.value
    return False


def _is_self_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "self"


def _methods(owner: ClassInfo, name: str) -> Iterator[FunctionInfo]:
    value = owner.lookup(name)
    for thing in value.things if value is not None else ():
        if isinstance(thing.ref, FunctionInfo):
            yield thing.ref


def ends_early(facts: Facts, loop: Loop) -> bool:
    """Whether a loop may end before it has gone over all."""
    node = facts.tree(loop.site).statement(loop.site)
    return node is None or any(isinstance(n, (ast.Break, ast.Return)) for n in ast.walk(node))


def is_closed(thing: Thing) -> bool:
    """Whether an object is of a kind that ``torch.utils._pytree`` does not look into."""
    if not isinstance(thing.ref, ClassInfo):
        return thing.name == "types.SimpleNamespace"
    bases = {base.rpartition(".")[2] for base in thing.ref.external_bases()}
    decorated = (ast.unparse(one) for one in thing.ref.node.decorator_list)
    open_ = any("dataclass" in one for one in decorated) or bases & {"NamedTuple", "ModelOutput"}
    return not open_
