"""What a program does with the weights of a model outside of its forward: shards, once sharded."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from enum import Enum
from itertools import zip_longest
from typing import Final

from ddpify.facts.constructed import stored as stored_names
from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Access, Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo, FunctionInfo, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.ranks.words import CLIPS
from ddpify.rules.shared.shards import Shards
from ddpify.source import Site

# What is the same of shards: it asks for names, shapes and numbers, or goes entry by entry.
_ASKS: Final = frozenset(
    """parameters named_parameters modules named_modules children named_children buffers
    named_buffers numel nelement dim ndim size element_size stride is_floating_point requires_grad_
    train eval zero_grad state_dict load_state_dict to cuda cpu float append extend add items
    values keys update get setdefault add_param_group step unscale_ startswith endswith
    detach clone get_submodule format join compile""".split()
)
_BY_ENTRY: Final = frozenset(
    "clamp_ clamp_min_ clamp_max_ mul_ div_ add_ sub_ lerp_ zero_ fill_ neg_ data".split()
)
_FUNCTIONS: Final = (
    *CLIPS,
    "torch.optim.",
    "torch.utils.data.",
    "torch.nn.utils.clip_grad_value_",
    "torch.nn.utils.clip_grad.clip_grad_value_",
    "torch.no_grad",
    "torch.amp.",
    "torch.cuda.amp.",
    "torch.autocast",
    "torch.compile",
    "itertools.",
    "collections.",
    "ddpify.runtime.",
)
_CONTAINS: Final = frozenset(
    """len list tuple set dict filter map zip enumerate iter next isinstance issubclass id hasattr
    getattr type sorted reversed any all range callable vars super""".split()
)
_COPIES: Final = "torch.optim.swa_utils."
# What only looks at numbers made of weights, whose making is asked: as long as it is no weight.
_OF_NUMBERS: Final = frozenset(
    f"builtins.{name}"
    for name in "int float bool abs min max round sum pow divmod str repr print format".split()
)
_SAYS: Final = frozenset("debug info warning error critical exception log write".split())
_PLAIN: Final = (Kind.FUNCTION, Kind.EXTERNAL, Kind.CLASS, Kind.DEVICE, Kind.ARGUMENT, Kind.INDEX)
_WEIGHTS: Final = frozenset({"weight", "bias", "data", "grad"})
# What makes numbers of weights that a method has got from `parameters()`.
_OF_TENSORS: Final = frozenset(
    "norm pow square abs item sum mean std var copy_ add_ sub_ lerp_ numpy cpu tolist".split()
)
# What makes tensors of the kind of a weight: of a shard, shards.
_OF_SHAPES: Final = frozenset("numel nelement dim ndim size shape".split())
_LIKE: Final = frozenset("new_zeros new_ones new_full new_empty new_tensor new".split())

# What has its place taken where a program with DDP is converted: see DDP930.
_OF_WRAPPERS: Final = ("torch.nn.parallel.DistributedDataParallel", ".no_sync")


def used(facts: Facts) -> Iterator[Call]:
    """Calls that are given weights, and for which shards are something else."""
    forwards = {forward.call.site for forward in facts.forwards}
    shown = {effect.call.site: effect.kind for effect in facts.effects}
    for call, _ in facts.sinks:
        says = call.name.rpartition(".")[2] in _SAYS
        shown.setdefault(call.site, EffectKind.CONSOLE if says else EffectKind.FILE)
    shards, names = Shards.of(facts), _names_of_weights(facts)
    for call in facts.calls:
        given = [(v, s) for v, s in _given(call) if shards.are(v, call.order)]
        if call.site in forwards or call.target is not None or not given:
            continue
        if call.name in _OF_WRAPPERS and facts.replicas:
            continue
        kind = EffectKind.CONSOLE if call.name in _OF_NUMBERS else shown.get(call.site)
        if kind is not None:
            weights = any(_is_weight(facts, value, site, names) for value, site in given)
            models = kind not in (EffectKind.CONSOLE, EffectKind.CHECKPOINT)  # see DDP904
            if weights or (models and any(v.of(Kind.WRAPPED, Kind.MODEL) for v, _ in given)):
                yield call
        elif not (_is_read(facts, call) or _is_known(call) or method_of(call) or part_of(call)):
            yield call


def _given(call: Call) -> Iterator[tuple[Value, Site | None]]:
    """What a call is given, and where."""
    if call.receiver is not None:
        yield call.receiver, call.receiver_site
    yield from zip_longest(call.args, call.arg_sites[: len(call.args)])
    yield from ((value, call.kwarg_sites.get(name)) for name, value in call.kwargs.items())


def _is_weight(facts: Facts, value: Value, site: Site | None, names: frozenset[str]) -> bool:
    """Whether it is a weight or made of one, not of a number that a model keeps."""
    node = facts.tree(site).expression(site) if site is not None else None
    parts = ast.walk(node) if node is not None else ()
    said = any(getattr(n, "attr", "") in names for n in parts)
    return said or bool(value.dep(Kind.PARAMETERS))


def _names_of_weights(facts: Facts) -> frozenset[str]:
    """``weight``, and what classes of the project call parameters of their own."""
    own = (facts.tree(call.site).statement(call.site) for call in facts.everywhere if _makes(call))
    return _WEIGHTS.union(*(stored_names(one) for one in own if one is not None))


def _makes(call: Call) -> bool:
    return call.name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


def _is_read(facts: Facts, call: Call) -> bool:
    """Whether it makes, or calls, an object of the project, and is entered."""
    called = facts.values.get(call.callee, NOTHING).of(Kind.CLASS, Kind.INSTANCE)
    return any(isinstance(thing.ref, ClassInfo) for thing in called)


def _is_known(call: Call) -> bool:
    name = call.name.rpartition(".")[2]
    if call.name.startswith("builtins."):
        return _is_of_python(name)
    if call.name.startswith(_FUNCTIONS):
        return not call.name.startswith(_COPIES)
    if call.receiver is None or not call.name.startswith("."):
        return False
    return name in _ASKS or (name in _BY_ENTRY and all(map(_is_number, call.args)))


def _is_of_python(name: str) -> bool:
    """A container, an iterator or an exception: not a name that nobody binds."""
    found = getattr(builtins, name, None)
    is_error = isinstance(found, type) and issubclass(found, BaseException)
    return is_error or name in _CONTAINS


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
    for call in facts.everywhere:
        tree = facts.tree(call.site)
        node = tree.expression(call.arg_sites[0]) if _makes(call) and call.arg_sites else None
        if not isinstance(node, ast.expr):
            continue
        copied = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "clone"
        if copied or _is_replaced(tree, call, node):
            continue
        if any(getattr(n, "attr", "") in _WEIGHTS for n in ast.walk(node)):
            yield call.site, "a parameter that is a view of another"
        elif _is_scalar(node):
            yield call.site, "a parameter without a dimension"


def _is_replaced(tree: Tree, call: Call, node: ast.expr) -> bool:
    """``self.rows.weight = nn.Parameter(self.rows.weight[:n])``: the other one is gone."""
    made = tree.statement(call.site)
    whole = ast.unparse(node.value) if isinstance(node, ast.Subscript) else ""
    targets = made.targets if isinstance(made, ast.Assign) else ()
    return [ast.unparse(target) for target in targets] == [whole]


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


def inner_reads(facts: Facts) -> Iterator[Site]:
    """``model._orig_mod``, which is not followed to what it is, but where it is sharded itself."""
    for access in facts.accesses:
        tree = facts.tree(access.base_site)
        read = tree.read_of(access.base_site) if access.attribute == "_orig_mod" else None
        node = tree.expression(read) if read is not None else None
        above = tree.parent(node) if node is not None else None
        sharded = isinstance(above, ast.Call) and ast.unparse(above.func).endswith("fully_shard")
        if node is not None and not sharded:
            yield access.base_site


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


def method_of(call: Call) -> list[tuple[FunctionInfo, Thing]]:
    """The methods of the project's classes that are called on a sharded model, or a part of one.

    Each with the model, of which there may be several to choose from.
    """
    name = call.name.rpartition(".")[2]
    found = []
    for thing in (call.receiver or NOTHING).of(Kind.WRAPPED, Kind.MODEL):
        for one in thing.inner.things if thing.inner is not None else (thing,):
            found += [(info, one) for info in _methods(one, name)]
    return found


def part_of(call: Call) -> bool:
    """Whether a layer of a sharded model is called from outside of it."""
    name = call.name.rpartition(".")[2]
    for thing in (call.receiver or NOTHING).of(Kind.WRAPPED):
        for inner in thing.inner.things if thing.inner is not None else ():
            if inner.attrs.get(name, NOTHING).of(Kind.MODEL, Kind.CRITERION):
                return True
    return False


class LayerUse(Enum):
    """What a method of a model does with its layers: what weighs most comes last."""

    NOTHING = "nothing, or it calls the model itself"
    LAYERS = "calls them, as a forward does"
    LIKE = "makes tensors of the kind of a weight, and perhaps calls them"
    UNCLEAR = "looks at their weights, or calls both them and the model itself"


def use_of(info: FunctionInfo, owner: Thing, around: tuple[FunctionInfo, ...] = ()) -> LayerUse:
    """What a method does, by its text and that of the methods that it calls."""
    if not isinstance(info.node, ast.FunctionDef) or not info.node.args.args:
        return LayerUse.NOTHING if isinstance(info.node, ast.FunctionDef) else LayerUse.UNCLEAR
    me = info.node.args.args[0].arg
    uses = {LayerUse.NOTHING}
    parents = {inner: node for node in ast.walk(info.node) for inner in ast.iter_child_nodes(node)}
    for node in ast.walk(info.node):
        if isinstance(node, ast.Name) and node.id == me and isinstance(node.ctx, ast.Load):
            uses.add(_of_name(node, parents, owner, (*around, info)))
        elif isinstance(node, ast.Attribute) and _asks(info.node):
            uses |= {LayerUse.UNCLEAR} if node.attr in _OF_TENSORS else set()
            uses |= {LayerUse.LIKE} if node.attr in _LIKE else set()
    gathers = uses & {LayerUse.LAYERS, LayerUse.LIKE}
    return LayerUse.UNCLEAR if gathers and _calls_whole(info.node, me) else _most(uses)


def _most(uses: set[LayerUse]) -> LayerUse:
    return max(uses, key=[*LayerUse].index, default=LayerUse.NOTHING)


def _of_name(
    node: ast.Name,
    parents: dict[ast.AST, ast.AST],
    owner: Thing,
    around: tuple[FunctionInfo, ...],
) -> LayerUse:
    """One ``self`` of a method: called, asked for an attribute, or given away."""
    above = parents[node]
    if isinstance(above, ast.Call) and above.func is node:
        return LayerUse.UNCLEAR if len(around) > 1 else LayerUse.NOTHING
    if not isinstance(above, ast.Attribute):
        return LayerUse.UNCLEAR
    if methods := list(_methods(owner, above.attr)):
        return _most({use_of(one, owner, around) for one in methods if one not in around})
    if above.attr in _ASKS | {"training"} or _is_plain(owner, above.attr):
        return LayerUse.NOTHING
    if _is_asked(above, parents, owner):
        return LayerUse.NOTHING
    last: ast.AST = above
    while isinstance(parents[last], (ast.Attribute, ast.Subscript)):
        last = parents[last]
        if isinstance(last, ast.Attribute) and last.attr in _ASKS:
            return LayerUse.NOTHING
        if isinstance(last, ast.Attribute) and last.attr in _WEIGHTS:
            asked = getattr(parents[last], "attr", "") in _OF_SHAPES
            return LayerUse.NOTHING if asked else LayerUse.UNCLEAR
    return LayerUse.LAYERS


def _is_plain(owner: Thing, name: str) -> bool:
    """Whether what a model keeps under a name is no layer and no weight, for certain."""
    kept = owner.attrs.get(name)
    if kept is None:
        return False
    return bool(kept.known and not kept.things) or bool(
        kept.things and all(thing.kind in _PLAIN for thing in kept.things)
    )


def _is_asked(above: ast.Attribute, parents: dict[ast.AST, ast.AST], owner: Thing) -> bool:
    """``cfg = self.config``, of which numbers are read, and nothing is called."""
    made = parents[above]
    if not isinstance(made, ast.Assign) or [type(one) for one in made.targets] != [ast.Name]:
        return False
    names = [n for n in parents if isinstance(n, ast.Name)]
    called = {n.id for n in names if getattr(parents[n], "func", None) is n}
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    if called & stored or owner.attrs.get(above.attr, NOTHING).of(Kind.MODEL):
        return False
    name = ast.unparse(made.targets[0])
    reads = [parents[n] for n in names if n.id == name and n not in made.targets]
    return all(
        isinstance(read, ast.Attribute)
        and read.attr not in _WEIGHTS
        and not isinstance(parents[read], ast.Attribute | ast.Subscript)
        and getattr(parents[read], "func", None) is not read
        for read in reads
    )


def _asks(node: ast.AST) -> bool:
    """Whether a method goes over weights by itself."""
    names = ("parameters", "named_parameters", "modules", "named_modules")
    return any(getattr(n, "attr", "") in names for n in ast.walk(node))


def _calls_whole(node: ast.AST, me: str) -> bool:
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    return any(isinstance(n.func, ast.Name) and n.func.id == me for n in calls)


def _methods(owner: Thing, name: str) -> Iterator[FunctionInfo]:
    value = owner.ref.lookup(name) if isinstance(owner.ref, ClassInfo) else None
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
