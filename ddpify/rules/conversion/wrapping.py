"""``FSDP(model, …)`` becomes ``fully_shard`` of what its policy wraps, and then of the model."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.conversion.code import RULE, NamedArguments, NoCounterpart, is_simple, written
from ddpify.rules.conversion.names import called, imports, mentions
from ddpify.rules.conversion.objects import predicate, text
from ddpify.rules.edits import fresh
from ddpify.source import Site

_PARAMETERS: Final = (
    "module process_group sharding_strategy cpu_offload auto_wrap_policy backward_prefetch"
    " mixed_precision ignored_modules param_init_fn device_id sync_module_states forward_prefetch"
    " limit_all_gathers use_orig_params ignored_states device_mesh"
).split()
_REFUSED: Final = {
    "process_group": "give FSDP a device_mesh instead, then run again",
    "param_init_fn": "build the model on its device, or on the meta device with to_empty() after"
    " fully_shard, by hand",
    "ignored_states": "leave it out, then run again",
    "ignored_modules": "leave it out: plain tensors and shards do not go into one step or norm",
}
_KEPT: Final = "SHARD_GRAD_OP"
_WHOLE: Final = frozenset({"NO_SHARD"})
_TWO: Final = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
_FULL: Final = "options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)"
_BUFFERS: Final = ("BatchNorm", "InstanceNorm", "SyncBatchNorm", "Buffer", "spectral_norm")


@dataclass(frozen=True)
class _Wrap:
    """One wrapped model: the call, its arguments, and the name that the model has."""

    facts: Facts
    tree: Tree
    given: NamedArguments
    statement: ast.stmt

    @property
    def site(self) -> Site:
        return self.tree.site(self.statement)

    def new(self, name: str) -> str:
        """A name that is free there."""
        return fresh(self.facts, self.site, name)


def wraps(facts: Facts, tree: Tree, node: ast.Call) -> Iterator[Edit]:
    """The edits that shard a model where FSDP1 wraps it. Raises NoCounterpart."""
    given = NamedArguments.of(tree, node, _PARAMETERS)
    given.refuse(_REFUSED)
    site = tree.site(node)
    statement = tree.statement(site)
    assert statement is not None
    wrap = _Wrap(facts, tree, given, statement)
    _device(wrap)
    _buffers(wrap)
    first, model, last = _names(wrap, given.by_name.get("module"), node)
    yield written(How.REPLACE, wrap.site, "\n".join([*first, *_lines(wrap, model), *last]))
    if (policy := only_here(tree, given.get("auto_wrap_policy"))) is not None:
        yield Edit(How.DELETE, tree.site(policy), "")


def _names(
    wrap: _Wrap, module: ast.expr | None, node: ast.Call
) -> tuple[list[str], str, list[str]]:
    """What stands before, the model's name, and what stands after."""
    tree, statement = wrap.tree, wrap.statement
    if module is not None and _is_of_value(statement, node):
        inner = text(tree, module)
        if isinstance(statement, ast.Return):
            name = inner if is_simple(module) else wrap.new("model")
            return ([] if name == inner else [f"{name} = {inner}"]), name, [f"return {name}"]
        assert isinstance(statement, ast.Assign)
        target = tree.text(statement.targets[0])
        if inner == target:
            return [], target, []
        if is_simple(module):
            return [], inner, [f"{target} = {inner}"]
        return [f"{target} = {inner}"], target, []
    raise NoCounterpart(
        tree.site(node),
        "the wrapped model is made in the midst of a statement",
        "give it a name in a statement of its own (`model = FSDP(model, …)`), then run again",
    )


def _is_of_value(statement: ast.stmt, node: ast.Call) -> bool:
    if isinstance(statement, ast.Return):
        return statement.value is node
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return False
    return statement.value is node and is_simple(statement.targets[0])


def _lines(wrap: _Wrap, model: str) -> Iterator[str]:
    """The statements that shard a model by its name."""
    keep = _reshard(wrap)
    made, mesh = _mesh(wrap)
    yield from made
    shared = [word for word in (mesh, _offload(wrap)) if word]
    policy, own, root = _precision(wrap)
    yield from policy
    sync = wrap.given.flag("sync_module_states", False)
    weights = wrap.new("weights")
    if sync:
        yield f"{weights} = {model}.state_dict()"
    yield from _units(wrap, model, [*shared, *own, *([keep] if keep != _ALWAYS else [])])
    yield f"fully_shard({', '.join([model, *shared, *root, keep])})"
    if sync:
        yield f"set_model_state_dict({model}, {weights}, {_FULL})  # rank 0's, as FSDP sent them"
        yield f"del {weights}"


_ALWAYS: Final = "reshard_after_forward=True"


def _units(wrap: _Wrap, model: str, words: Iterable[str]) -> Iterator[str]:
    node = wrap.given.get("auto_wrap_policy")
    if node is None:
        return
    block = wrap.new("block")
    asked = _condition(wrap, node, block)
    yield f"for {block} in reversed([*{model}.modules()][1:]):  # those inside of others first"
    yield f"    if {asked}:"
    yield f"        fully_shard({', '.join([block, *words])})"


def _condition(wrap: _Wrap, node: ast.expr, block: str) -> str:
    """What a policy asks, written out where it is made beside the call."""
    if found := predicate(wrap.tree, once(wrap.tree, node) or node, block):
        return found
    if not _is_policy(wrap, node):
        raise NoCounterpart(
            wrap.tree.site(node),
            "which modules this policy wraps is not followed",
            "name their classes with ModuleWrapPolicy({…}), then run again",
        )
    policy = wrap.tree.text(node)
    return f"{policy} and {policy}({block})"


def only_here(tree: Tree, node: ast.expr | None) -> ast.stmt | None:
    """The assignment of a policy that is made beside the call, for nothing else."""
    made = once(tree, node) if node is not None else None
    if node is None or made is None or not predicate(tree, made, "block"):
        return None
    assert isinstance(node, ast.Name)
    read = [n for n in tree.reads(tree.function(node), node.id)]
    statement = tree.parent(made)
    return statement if len(read) == 1 and isinstance(statement, ast.Assign) else None


def once(tree: Tree, node: ast.expr) -> ast.expr | None:
    """What a name stands for, where its function binds it once, before."""
    if not isinstance(node, ast.Name):
        return None
    scope = tree.function(node)
    for other in tree.nodes(scope):
        if isinstance(other, ast.Assign) and len(other.targets) == 1:
            target = other.targets[0]
            if isinstance(target, ast.Name) and target.id == node.id and tree.is_kept(target):
                return other.value if tree.function(other) is scope else None
    return None


def _is_policy(wrap: _Wrap, node: ast.expr) -> bool:
    """Whether all that an argument may be is made by a call that becomes a condition."""
    value = wrap.facts.values.get(wrap.tree.site(node))
    things = value.things if value is not None else ()
    names = {thing.name.rpartition(".")[2] for thing in things}
    known = {
        "transformer_auto_wrap_policy",
        "size_based_auto_wrap_policy",
        "lambda_auto_wrap_policy",
        "ModuleWrapPolicy",
    }
    return is_simple(node) and bool(names) and names <= known


def _reshard(wrap: _Wrap) -> str:
    """Whether weights are shards again after a forward."""
    node = wrap.given.get("sharding_strategy")
    if node is None:
        return _ALWAYS
    names = dict(mentions(wrap.tree))
    strategy = names.get(node, "").removeprefix("ShardingStrategy.")
    site = wrap.tree.site(node)
    if strategy in _WHOLE:
        raise NoCounterpart(
            site, "NO_SHARD keeps whole weights: that is DDP", "wrap the model in DDP by hand"
        )
    if strategy in _TWO and wrap.given.get("device_mesh") is None:
        raise NoCounterpart(
            site,
            f"{strategy} without a mesh makes its groups itself",
            'give FSDP device_mesh=init_device_mesh("cuda", (nodes, ranks of a node)), then run'
            " again",
        )
    if strategy:
        keeps = strategy in (_KEPT, "_HYBRID_SHARD_ZERO2")
        return "reshard_after_forward=False" if keeps else _ALWAYS
    if not (_two_strategies(wrap.facts) and _is_strategy(wrap, node)):
        raise NoCounterpart(
            site, "which strategy this is is not followed", "write it there, then run again"
        )
    kept = f"{_strategies(wrap, node)}.{_KEPT}"
    return f"reshard_after_forward={wrap.tree.text(node)} is not {kept}"


def _strategies(wrap: _Wrap, node: ast.expr) -> str:
    """The name that the file has for the strategies."""
    for statement in imports(wrap.tree):
        for one in statement.names:
            if one.name == "ShardingStrategy":
                return one.asname or one.name
    raise NoCounterpart(
        wrap.tree.site(node),
        "this file has no name for the strategies",
        "import ShardingStrategy here, then run again",
    )


def _is_strategy(wrap: _Wrap, node: ast.expr) -> bool:
    value = wrap.facts.values.get(wrap.tree.site(node))
    names = [thing.name for thing in value.things] if value is not None else []
    return bool(names) and all(".ShardingStrategy." in name for name in names)


def _two_strategies(facts: Facts) -> bool:
    """Whether a program names no others than FULL_SHARD and SHARD_GRAD_OP, each by its name."""
    for tree in facts.trees.values():
        for node, name in mentions(tree):
            parent = tree.parent(node)
            annotation = isinstance(parent, ast.arg | ast.AnnAssign) and parent.annotation is node
            known = name.partition(".")[2] in ("FULL_SHARD", _KEPT)
            if name.startswith("ShardingStrategy") and not annotation and not known:
                return False
    return True


def _mesh(wrap: _Wrap) -> tuple[list[str], str]:
    """The statement that makes a mesh, and the argument."""
    mesh, device = wrap.given.get("device_mesh"), wrap.given.get("device_id")
    if mesh is not None and is_simple(mesh):
        return [], f"mesh={wrap.tree.text(mesh)}"
    if mesh is None and (device is None or not _is_cpu(wrap.tree, device)):
        return [], ""
    made = (
        wrap.tree.text(mesh) if mesh is not None else 'init_device_mesh("cpu", (get_world_size(),))'
    )
    name = wrap.new("mesh")
    return [f"{name} = {made}"], f"mesh={name}"


def _is_cpu(tree: Tree, node: ast.expr) -> bool:
    """``"cpu"``, ``torch.device("cpu")``, also by a name that is bound once."""
    node = once(tree, node) or node
    given = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else node
    of_torch = not isinstance(node, ast.Call) or tree.text(node.func).endswith("device")
    return of_torch and isinstance(given, ast.Constant) and given.value == "cpu"


def _offload(wrap: _Wrap) -> str:
    node = wrap.given.get("cpu_offload")
    if node is None:
        return ""
    policy = text(wrap.tree, node)
    if called(wrap.tree, node) != "CPUOffload":
        return f"offload_policy={policy} or OffloadPolicy()"
    return f"offload_policy={policy}" if policy.startswith("CPU") else ""


def _precision(wrap: _Wrap) -> tuple[list[str], list[str], list[str]]:
    """The statement that names a policy, and the argument of units and of the model.

    FSDP1 casts what the model is given, and not what its units are.
    """
    node = wrap.given.get("mixed_precision")
    if node is None:
        return [], [], []
    code = text(wrap.tree, node)
    if called(wrap.tree, node) != "MixedPrecision":
        code = f"{code} or MixedPrecisionPolicy()"
    if wrap.given.get("auto_wrap_policy") is None:
        return [], [], [f"mp_policy={code}"]
    name = wrap.new("mp_policy")
    own = f"mp_policy=replace({name}, cast_forward_inputs=False)"
    return [f"{name} = {code}"], [own], [f"mp_policy={name}"]


def _device(wrap: _Wrap) -> None:
    """Raise NoCounterpart where shards would not go to the GPU that they were given."""
    node = wrap.given.get("device_id")
    current = {call.site for call in wrap.facts.named("torch.cuda.current_device")}
    chosen = wrap.facts.named("torch.cuda.set_device", "torch.accelerator.set_device_index")
    if node is None or wrap.tree.site(node) in current or _is_cpu(wrap.tree, node) or chosen:
        return
    raise NoCounterpart(
        wrap.tree.site(node),
        "fully_shard takes the current device, which the program does not set",
        "call torch.cuda.set_device(local_rank) before, then run again",
    )


def _buffers(wrap: _Wrap) -> None:
    """Raise NoCounterpart where FSDP1 would cast buffers, or keep layers out of the precision."""
    if wrap.given.get("mixed_precision") is None:
        return
    calls = wrap.facts.everywhere
    layers = [c for c in calls if c.name.startswith("torch.nn.") and _has_buffers(c)]
    layers += [c for c in calls if c.name == ".register_buffer"]
    if layers or not _is_known(wrap):
        raise NoCounterpart(
            layers[0].site if layers else wrap.tree.site(wrap.given.node),
            "FSDP1 casts buffers and keeps batch norms whole in mixed precision; fully_shard does"
            " neither" + ("" if layers else ", and which buffers this model has is not known"),
            "leave mixed_precision out, then set it by hand in the result",
        )


def _has_buffers(call: Call) -> bool:
    return call.name.rpartition(".")[2].startswith(_BUFFERS)


def _is_known(wrap: _Wrap) -> bool:
    """Whether the class of the model is read, so that its layers are."""
    return _is_read(wrap.facts, wrap.tree, wrap.given.by_name["module"])


def _is_read(facts: Facts, tree: Tree, model: ast.expr) -> bool:
    value = facts.values.get(tree.site(model))
    things = value.things if value is not None else ()
    return bool(things) and all(t.ref is not None or t.name.startswith("torch.nn.") for t in things)


def hints(facts: Facts, tree: Tree, node: ast.Call) -> Iterator[Finding]:
    """What changes the speed alone and has another form in FSDP2, and what is not known."""
    given = NamedArguments.of(tree, node, _PARAMETERS)
    model = given.by_name.get("module")
    if model is not None and not _is_read(facts, tree, model):
        yield Finding(
            RULE,
            tree.site(model),
            "this model is not read: where a step leaves weights without a gradient, FSDP1 lets"
            " them decay and FSDP2 does not, and where these differ between ranks it goes wrong",
            Severity.NOTE,
            advice="see that each of its weights is used in every step on every rank",
        )
    ahead = given.by_name.get("forward_prefetch")
    if isinstance(ahead, ast.Constant) and ahead.value is True:
        yield Finding(
            RULE,
            tree.site(ahead),
            "forward_prefetch has another form: set_modules_to_forward_prefetch() of each unit",
            Severity.NOTE,
            advice="add it where the order of the units is fixed and the CPU is too slow",
        )
