"""What a program does with the weights of a model outside of its forward: shards, once sharded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from typing import Final

from ddpify.facts.events import Access, Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo, FunctionInfo, Loop
from ddpify.facts.values import NOTHING, Kind, Thing, Value

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
    *CLIPS,
    "torch.optim.",
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
_BUILTINS: Final = frozenset(
    f"builtins.{name}"
    for name in """len list tuple set dict filter map zip enumerate iter next sum isinstance id
    hasattr getattr type sorted print reversed str any all range int float format max min
    round""".split()
)
_WEIGHTS: Final = frozenset({"weight", "bias", "data", "grad"})
# What makes numbers of weights that a method has got from `parameters()`.
_OF_TENSORS: Final = frozenset(
    "norm pow square abs item sum mean std var copy_ add_ sub_ lerp_ numpy cpu tolist".split()
)
_STORED: Final = frozenset({"requires_grad", "training"})


def is_shard(value: Value | None) -> bool:
    """Whether it is a sharded model, a weight of one, its gradient, or computed from these."""
    if value is None or value.dep(Kind.FORWARD, Kind.BATCH, Kind.STATE):  # states: see DDP602
        return False
    return any(_of_wrapped(thing) for thing in value.dep(Kind.WRAPPED, Kind.PARAMETERS))


def _of_wrapped(thing: Thing) -> bool:
    owners = thing.inner.things if thing.kind is Kind.PARAMETERS and thing.inner else (thing,)
    return any(owner.kind is Kind.WRAPPED for owner in owners)


def used(facts: Facts) -> Iterator[Call]:
    """Calls that are given weights, and for which shards are something else."""
    others = {forward.call.site for forward in facts.forwards}
    others |= {effect.call.site for effect in facts.effects}  # what is made of weights is asked
    others |= {call.site for call, _ in facts.sinks}
    norms = {thing for call in facts.named(*CLIPS) for thing in call.result.things}
    for call in facts.calls:
        given = [v for v in (call.receiver, *call.args, *call.kwargs.values()) if is_shard(v)]
        if call.site in others or call.target is not None or not given:
            continue
        if all(v is not None and not norms.isdisjoint(v.all_deps()) for v in given):
            continue  # a norm of all, which is whole
        if not (_is_known(call) or method_of(call) or part_of(call)):
            yield call


def _is_known(call: Call) -> bool:
    if any(isinstance(thing.ref, ClassInfo) for thing in call.result.of(Kind.INSTANCE)):
        return True  # of the project, and read
    name = call.name.rpartition(".")[2]
    if call.name in _BUILTINS or call.name.startswith(_FUNCTIONS):
        return True
    if call.receiver is None or not call.name.startswith("."):
        return False
    return name in _ASKS or (name in _BY_ENTRY and all(map(_is_number, call.args)))


def _is_number(value: Value) -> bool:
    """Whether it goes with shards entry by entry: a number, or a shard itself."""
    return is_shard(value) or not value.dep(Kind.FORWARD, Kind.BATCH, Kind.RANDOM)


def shown_norms(facts: Facts) -> Iterator[Call]:
    """Calls that clip gradients and whose norm goes on."""
    for call in facts.named(*CLIPS):
        tree = facts.tree(call.site)
        node = tree.expression(call.site)
        if node is None or not isinstance(tree.parent(node), ast.Expr):
            yield call


def stored(facts: Facts) -> Iterator[Access]:
    """Assignments to what weights are: ``p.data = …``, ``p.grad = …``."""
    for access in facts.accesses:
        if access.stored and is_shard(access.base) and access.attribute not in _STORED:
            yield access


# -- methods and parts of a sharded model --------------------------------------------------------


def method_of(call: Call) -> FunctionInfo | None:
    """The method of the project's class that is called on a sharded model."""
    owner = owner_of(call)
    return next(_methods(owner, call.name.rpartition(".")[2]), None) if owner is not None else None


def owner_of(call: Call) -> ClassInfo | None:
    """The class of the sharded model that a method is called on."""
    for thing in (call.receiver or NOTHING).of(Kind.WRAPPED):
        for inner in thing.inner.things if thing.inner is not None else ():
            if isinstance(inner.ref, ClassInfo):
                return inner.ref
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
