"""A program with DDP by hand: its models are sharded where they are complete, before an optimizer.

DDP sent rank 0's weights when it wrapped a model, and rank 0's buffers before forwards; that
stays, in the open. What of DDP is not followed, or has no counterpart, is named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Model
from ddpify.facts.roles import whole
from ddpify.facts.scopes import Guard
from ddpify.facts.values import NOTHING, Kind, Value
from ddpify.facts.wrapping import unwrapped_model
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.conversion import steps
from ddpify.rules.conversion.code import NamedArguments, NoCounterpart, is_simple, tried
from ddpify.rules.conversion.left import is_gone, tidied
from ddpify.rules.conversion.names import dotted
from ddpify.rules.conversion.rank_guards import opened
from ddpify.rules.edits import edit, once
from ddpify.rules.shared.sharding import sharded
from ddpify.rules.shared.shards import Shards
from ddpify.settings import Settings
from ddpify.source import Site

_DDP: Final = "torch.nn.parallel.DistributedDataParallel"
_NAMES: Final = (_DDP, "torch.nn.parallel.distributed.DistributedDataParallel")
_PARAMETERS: Final = (
    "module device_ids output_device dim broadcast_buffers init_sync process_group bucket_cap_mb"
    " find_unused_parameters check_reduction gradient_as_bucket_view static_graph"
    " delay_all_reduce_named_params param_to_hook_all_reduce mixed_precision device_mesh"
    " skip_all_reduce_unused_params bucket_cap_mb_list batched_grad_copy forward_sync_buffers"
).split()
_REFUSED: Final = {
    "process_group": "leave it out, or shard by hand with a mesh of that group",
    "device_mesh": "leave it out, or shard by hand with that mesh",
    "mixed_precision": "leave it out, and migrate with --fsdp-bf16",
    "delay_all_reduce_named_params": "leave it out, then run again",
    "param_to_hook_all_reduce": "leave it out, then run again",
    "dim": "leave it out, then run again",
}
_OPEN: Final = "torch.distributed.init_process_group"
_HAS_RANKS: Final = (
    "torch.distributed.is_initialized",
    "torch.distributed.is_torchelastic_launched",
)
_DEVICE: Final = ("torch.cuda.set_device", "torch.accelerator.set_device_index")
_SPAWN: Final = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_SYNC: Final = "convert_sync_batchnorm"
# What means the same of a model and of its shards; what is looked at is judged by other rules.
_SAME: Final = frozenset(
    "train eval zero_grad to cuda cpu parameters state_dict load_state_dict no_sync forward modules"
    " children buffers register_forward_hook register_forward_pre_hook".split()
)
_NAMED: Final = frozenset({"named_parameters", "named_modules", "named_children"})
_BY_HAND: Final = "write it for the model before it is wrapped, then run again"
_LAST: Final = "require_backward_grad_sync"


def replicas(facts: Facts, settings: Settings) -> Iterator[Finding]:
    """The findings of a program with DDP: edits that shard its models, or what hinders them."""
    found = [*_findings(facts, settings)]
    yield from found
    if all(one.fix or one.severity is Severity.NOTE for one in found):
        yield from _left(facts, [edit for one in found for edit in one.fix])


def _findings(facts: Facts, settings: Settings) -> Iterator[Finding]:
    wraps = [call for call in facts.calls if call.name in _NAMES]
    started = facts.named(*_SPAWN)
    if started:
        yield NoCounterpart(
            started[0].site,
            "ranks that the program starts itself are not those of torchrun, whose variables the"
            " helpers read",
            "start it with torchrun and take the rank from the environment, then run again",
        ).finding
    for calls in once(tuple(wraps)).values():
        what = "fully_shard takes the place of DistributedDataParallel"
        yield from tried(calls[0].site, what, partial(_wrap, facts, settings, calls[0]))
    what = "a sharded model has no wrapper"
    yield from tried(facts.entry.site, what, partial(_inner, facts))
    yield from tried(facts.entry.site, "", partial(_methods, facts))
    yield from tried(facts.entry.site, "", partial(_moves, facts))
    for site, node in _switches(facts):
        what = "whether gradients are averaged is a setting of fully_shard"
        yield from tried(site, what, partial(_switch, facts, site, node))
    what = "fully_shard has no no_sync(): whether gradients are averaged is a setting"
    for tree in facts.trees.values():
        for part in tree.nodes():
            if isinstance(part, ast.With):
                paused = partial(steps.unsynced, facts, tree, part, partial(_is_replica, facts))
                yield from tried(tree.site(part), what, paused)
    yield from _prefixes(facts)
    yield from opened(facts)


def _is_replica(facts: Facts, call: Call) -> bool:
    return call.receiver_site in facts.replicas


# -- the wrap ------------------------------------------------------------------------------------


def _wrap(facts: Facts, settings: Settings, call: Call) -> Iterator[Edit]:
    tree = facts.tree(call.site)
    node = tree.expression(call.site)
    assert isinstance(node, ast.Call)
    given = NamedArguments.of(tree, node, _PARAMETERS)
    given.refuse(_REFUSED)
    if not given.flag("init_sync", True):
        what = "with init_sync=False each rank begins with weights of its own"
        raise NoCounterpart(call.site, what, "leave it out, then run again")
    model = _model_of(facts, call)
    home = model.home if model is not None else None
    if model is None or home is None or home.each or home.optional:
        raise NoCounterpart(
            call.site,
            "where this model is complete, and has no optimizer yet, is not followed",
            "give it a name in a statement of its own before its optimizer is made, then run again",
        )
    born = {thing.born for thing in model.things}
    since = (order for one, order in Shards.of(facts).since.items() if one.born in born)
    order = min(since, default=call.order)
    _begun(facts, call, order)
    _unused(given, model)
    _normed(facts, order)
    moved = [c for c in facts.calls if c.name in (".to", ".cuda") and c.order > order]
    moved = [c for c in moved if _is_of(c.receiver, model)]
    before = [f"{home.target}.to(local_device())"] if moved else []
    hook = f"{home.target}.register_forward_pre_hook(lambda model, _: sync_buffers(model))"
    sent = given.flag("broadcast_buffers", True) and given.flag("forward_sync_buffers", True)
    after = [hook] if model.buffers and sent else []  # rank 0's, as DDP sent them
    if after:
        _synced(facts, call)
    things = (call.arg(0, "module") or NOTHING).of(Kind.MODEL, Kind.WRAPPED)
    read = replace(model, things=tuple(map(whole, things)))  # as this reading has them
    yield sharded(facts, home, [read], settings, False, before, after)
    yield _unwrapped(facts, call, node, given.by_name["module"])


def _unwrapped(facts: Facts, call: Call, node: ast.Call, module: ast.expr) -> Edit:
    """``model = DDP(model)`` goes; ``self.net = DDP(net)`` is another name of the model."""
    tree = facts.tree(call.site)
    above = tree.parent(node)
    same = isinstance(above, ast.Assign) and [*map(tree.text, above.targets)] == [tree.text(module)]
    if same and above is not None:
        outer = tree.parent(above)
        alone = isinstance(outer, ast.If) and outer.body == [above] and not outer.orelse
        return Edit(How.DELETE, tree.site(outer if alone and outer is not None else above), "")
    return Edit(How.REPLACE, call.site, tree.text(module))


def _model_of(facts: Facts, call: Call) -> Model | None:
    return next((one for one in facts.models if _is_of(call.arg(0, "module"), one)), None)


def _is_of(value: Value | None, model: Model) -> bool:
    born = {thing.born for thing in model.things}
    things = (value or NOTHING).of(Kind.MODEL, Kind.WRAPPED)
    return any(whole(thing).born in born and thing.part_of is None for thing in things)


def _begun(facts: Facts, call: Call, order: int) -> None:
    """Raise NoCounterpart unless there are ranks where the model is complete, iff it is wrapped."""
    tree = facts.tree(call.site)
    opens = facts.named(_OPEN)
    if not opens or min(one.order for one in opens) > order:
        raise NoCounterpart(
            opens[0].site if opens else call.site,
            "the process group is opened behind where the model would be sharded",
            "open it before the model is built, then run again",
        )
    late = [one for one in facts.named(*_DEVICE) if one.order > order]
    if late:
        raise NoCounterpart(
            late[0].site,
            "the GPU of this rank is chosen behind where the model would be sharded",
            "choose it before the model is built, then run again",
        )
    asked = {_condition(facts, guard.site) for one in opens for guard in one.where.guards}
    for guard in call.where.guards:
        if _condition(facts, guard.site) not in asked and not _asks_ranks(facts, guard):
            raise NoCounterpart(
                guard.site,
                f"whether the model is wrapped hangs on `{facts.text(guard.site)}`, and whether"
                " there are ranks on something else",
                "wrap it whenever the process group is opened, then run again",
            )
    if isinstance(tree.statement(call.site), ast.Return | ast.Assign | ast.AnnAssign):
        return
    raise NoCounterpart(
        call.site,
        "the model is wrapped in the midst of a statement",
        "give it a name in a statement of its own (`model = DDP(model)`), then run again",
    )


def _condition(facts: Facts, site: Site) -> str:
    return " ".join(facts.text(site).split())


def _asks_ranks(facts: Facts, guard: Guard) -> bool:
    """``dist.is_initialized()``, ``world_size > 1``, and what was made of these."""
    of = (*guard.test.dep(Kind.RANK), *guard.test.dep(Kind.WORLD))
    return bool(of) or any(one.site.within(guard.site) for one in facts.named(*_HAS_RANKS))


def _unused(given: NamedArguments, model: Model) -> None:
    """Raise NoCounterpart where weights without a gradient may be meant, which ranks pair up."""
    node = given.get("find_unused_parameters")
    off = isinstance(node, ast.Constant) and node.value is False
    if node is None or off:
        return
    read = all(thing.ref is not None for thing in model.things)
    if not read or model.unused:
        raise NoCounterpart(
            given.tree.site(node),
            "weights that get no gradient on some ranks are not averaged by fully_shard",
            "leave find_unused_parameters out, if all weights are used in each step, then run"
            " again",
        )


def _normed(facts: Facts, order: int) -> None:
    """Raise NoCounterpart for layers that are replaced in a model that is sharded already."""
    for call in facts.calls:
        if call.name.rpartition(".")[2] == _SYNC and call.order > order:
            raise NoCounterpart(
                call.site,
                "batch norms are replaced behind where the model would be sharded",
                "replace them before the optimizer is made, then run again",
            )


def _synced(facts: Facts, call: Call) -> None:
    """Raise NoCounterpart where DDP did not send the buffers before some forward."""
    why = ""
    if any(True for _ in _switches(facts)) or any(c.name == ".no_sync" for c in facts.calls):
        why = "without averaging gradients DDP sends no buffers"
    raw = [f for f in facts.forwards if f.call.callee not in facts.replicas]
    if any(f.order > call.order and not f.call.where.one_rank() for f in raw):
        why = "beside its wrapper the model is called with each rank's own buffers"
    if why:
        raise NoCounterpart(
            call.site,
            f"{why}, and this model has some that batches change",
            "pass broadcast_buffers=False, if that is meant, or shard it by hand",
        )


# -- names, methods and settings of the wrapper --------------------------------------------------


def _inner(facts: Facts) -> Iterator[Edit]:
    """``model.module`` is the model."""
    seen = set[Site]()
    for access in facts.accesses:
        if access.base_site not in facts.replicas or access.base_site in seen:
            continue
        tree = facts.tree(access.base_site)
        node = tree.expression(access.base_site)
        parent = tree.parent(node) if node is not None else None
        if not isinstance(parent, ast.Attribute) or access.attribute != "module":
            continue
        seen.add(access.base_site)
        above = tree.parent(parent)
        if node is not None and is_simple(node):
            place = above if above is not None and unwrapped_model(above) is not None else parent
            yield Edit(How.REPLACE, tree.site(place), tree.text(node))
        else:
            raise NoCounterpart(
                tree.site(parent), "which model this is is not followed", "give it a name first"
            )


def _methods(facts: Facts) -> Iterable[Edit]:
    """Raise NoCounterpart for what only a wrapper has, or gives other names."""
    for calls in once(facts.calls).values():
        call = calls[0]
        name = call.name.removeprefix(".")
        if call.receiver_site not in facts.replicas or call.target is not None:
            continue
        if call.name.startswith(".") and name not in _SAME:
            what = f"`{name}()` of a model in DDP has no counterpart that is written here"
            if name in _NAMED:
                what = f"`{name}()` of a model in DDP gives names with `module.`"
            raise NoCounterpart(call.site, what, _BY_HAND)
    for access in facts.accesses:
        known = access.attribute in (*_SAME, "module", "training", _LAST)
        called = access.base_site in facts.replicas and not known
        tree = facts.tree(access.base_site)
        node = tree.expression(access.base_site) if called else None
        parent = tree.parent(node) if node is not None else None
        above = tree.parent(parent) if parent is not None else None
        if called and not (isinstance(above, ast.Call) and above.func is parent):
            what = f"`{access.attribute}` of a model in DDP is not followed"
            raise NoCounterpart(access.base_site, what, _BY_HAND)
    return ()


def _moves(facts: Facts) -> Iterable[Edit]:
    """Raise NoCounterpart for what changes the weights of a model that is sharded already."""
    shards = Shards.of(facts)
    for call in facts.calls:
        things = (call.receiver or NOTHING).of(Kind.MODEL, Kind.WRAPPED)
        if not any(shards.is_sharded(thing, call.order) for thing in things):
            continue
        name = call.name.removeprefix(".")
        typed = name == "to" and not all(map(_is_device, (*call.args, *call.kwargs.values())))
        if typed or name in ("half", "float", "double", "bfloat16", "type", "apply", "to_empty"):
            raise NoCounterpart(
                call.site,
                "the weights are changed behind where the model is sharded",
                "do it before the optimizer is made, then run again",
            )
    return ()


def _is_device(value: Value) -> bool:
    """``device``, ``"cuda"``, ``rank``, ``non_blocking=True``: for certain no type of numbers."""
    kinds = {thing.kind for thing in value.things}
    return (
        isinstance(value.const, str | int) if value.known else kinds in ({Kind.DEVICE}, {Kind.RANK})
    )


def _switches(facts: Facts) -> Iterator[tuple[Site, ast.Assign]]:
    for site in dict.fromkeys(a.base_site for a in facts.accesses if a.attribute == _LAST):
        tree = facts.tree(site)
        statement = tree.statement(site)
        if isinstance(statement, ast.Assign):
            yield site, statement


def _switch(facts: Facts, site: Site, node: ast.Assign) -> Iterator[Edit]:
    """``model.require_backward_grad_sync = last`` is a setting of fully_shard, too."""
    tree = facts.tree(site)
    steps.cleared(facts)
    code = f"{facts.text(site)}.set_requires_gradient_sync({tree.text(node.value)})"
    yield Edit(How.REPLACE, tree.site(node), code)


def _prefixes(facts: Facts) -> Iterator[Finding]:
    """States of the wrapper itself, whose names begin with ``module.``: they keep them."""
    for calls in once(facts.named(".state_dict", ".load_state_dict")).values():
        call = calls[0]
        if call.receiver_site in facts.replicas:
            yield from tried(
                call.site,
                "names in the file begin with `module.`, as they did",
                partial(_prefixed, facts, call),
            )


def _prefixed(facts: Facts, call: Call) -> Iterator[Edit]:
    if call.receiver_site is None or not facts.replicas[call.receiver_site]:
        raise NoCounterpart(
            call.site,
            "the names in this state begin with `module.` in some runs and not in others",
            "take that of `model.module` where the model is wrapped, then run again",
        )
    if call.name == ".state_dict":
        code = '{"module." + name: value for name, value in {}.items()}'
        yield Edit(How.REPLACE, call.site, code)
    elif call.arg_sites:
        yield edit(facts, How.REPLACE, call.arg_sites[0], "without_module_prefix({})")


# -- what is left ----------------------------------------------------------------------------------


def _left(facts: Facts, edits: list[Edit]) -> Iterator[Finding]:
    """Names of DDP that no edit takes away; an import of one that nothing uses goes."""
    for tree in facts.trees.values():
        for node in tree.nodes():
            named = isinstance(node, ast.Name | ast.Attribute) and dotted(tree, node) in _NAMES
            parent = tree.parent(node)
            typed = isinstance(parent, ast.arg | ast.AnnAssign) and parent.annotation is node
            if named and not typed and not is_gone(tree.site(node), edits, tree):
                yield NoCounterpart(
                    tree.site(node),
                    "what is asked or done here with DistributedDataParallel is not followed",
                    "leave it out, then run again",
                ).finding
    yield from tidied(facts, edits, _NAMES.__contains__, "DDP")
