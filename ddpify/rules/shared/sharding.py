"""The statements that shard a model, as plain PyTorch: its blocks, then what is left. ::

    if is_distributed():
        ready_to_shard(model)
        for block in model.encoder.layers:
            fully_shard(block)
        fully_shard(model, reshard_after_forward=True)

The root keeps its weights whole after a forward unless it is told not to. A forward without a
backward before the optimizer steps, for instance to count hits, then leaves them as they were
before that step (measured with torch 2.13: losses of 0.024 more, without an error).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ddpify.facts.blocks import blocks, units
from ddpify.facts.model import Facts, Home, Model
from ddpify.facts.roles import whole
from ddpify.facts.values import Kind, Thing
from ddpify.rules.base import Edit, How, Import
from ddpify.rules.edits import edit, fresh, helpers
from ddpify.rules.shared.shards import Shards
from ddpify.settings import Settings
from ddpify.source import Site

_FSDP: Final = "torch.distributed.fsdp"
_WRAPPERS: Final = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
_BF16: Final = "MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32"


@dataclass(frozen=True)
class _Extra:
    """What an option adds: statements before, an argument of each unit, and of the model's own."""

    lines: tuple[str, ...]
    unit: str
    imports: tuple[Import, ...]
    root: str = ""  # where it is another one


def sharded(
    facts: Facts,
    home: Home,
    models: Sequence[Model],
    settings: Settings,
    sync_batchnorm: bool,
    first: Sequence[str] = (),
    last: Sequence[str] = (),
) -> Edit:
    """The edit that shards what has a home, between other statements."""
    model = fresh(facts, home.statement, "part") if home.each else home.target
    extras = tuple(_extras(facts, home, settings))
    things = [thing for one in models for thing in one.things]
    units, wanted = unit_lines(facts, home.statement, model, things, settings)
    if units and not settings.fsdp_reshard:
        units, wanted = _kept(facts, home, units), {*wanted, Import("torch", "is_grad_enabled")}
    unit = "".join(one.unit for one in extras)
    root = "".join((_inside(facts, home, model, models), *(one.root or one.unit for one in extras)))
    ready = f"ready_to_shard({model}{', sync_batchnorm=True' if sync_batchnorm else ''})"
    units = with_argument(units, unit)
    lines = [ready, *units, f"fully_shard({root}, reshard_after_forward=True)"]
    if settings.fsdp_meta:
        lines = [*_converted(model, sync_batchnorm), *_dealt(units), f"ready_to_shard({model})"]
        lines.append(f"fully_shard({root}, reshard_after_forward=True)")
        wanted = {*wanted, *([Import("torch.nn", "SyncBatchNorm")] if sync_batchnorm else [])}
    lines = [*first, *lines, *last]
    if home.each:
        held = home.target if home.each == "list" else f"{home.target}.values()"
        lines = [f"for {model} in {held}:", *_indented(lines)]
    before = [line for one in extras for line in one.lines]
    asked = f"is_distributed() and {home.target} is not None"
    asked = asked if home.optional else "is_distributed()"
    code = "\n".join([f"if {asked}:", *_indented([*before, *lines])])
    imports = {Import(_FSDP, "fully_shard"), *wanted, *(i for one in extras for i in one.imports)}
    made = edit(facts, How.AFTER, home.statement, code)
    return replace(made, imports=(*helpers(facts, code), *sorted(imports)))


def unknown_classes(facts: Facts, settings: Settings) -> list[str]:
    """What is to be sharded one by one and is no class of the project: a library's, or a slip."""
    nodes = (node for tree in facts.trees.values() for node in ast.walk(tree.module))
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    return [name for name in settings.fsdp_wrap if name not in own]


def idle_options(facts: Facts, models: Sequence[Model], settings: Settings) -> list[str]:
    """Options for blocks, where a model has none."""
    chosen = {
        "--fsdp-recompute": settings.fsdp_recompute,
        "--no-fsdp-reshard": not settings.fsdp_reshard,
    }
    things = [thing for one in models for thing in one.things]
    has = bool(settings.fsdp_wrap) or not any(chosen.values()) or bool(blocks(facts, things))
    return [] if has else [name for name, asked in chosen.items() if asked]


def _extras(facts: Facts, home: Home, settings: Settings) -> Iterator[_Extra]:
    """What each option adds."""
    if settings.fsdp_hybrid:
        mesh, own = (fresh(facts, home.statement, name) for name in ("mesh", "per_node"))
        yield _Extra(
            (
                f'{own} = int(environ["LOCAL_WORLD_SIZE"])',
                f"{mesh} = init_device_mesh(local_device().type, "
                f'(get_world_size() // {own}, {own}), mesh_dim_names=("replicate", "shard"))',
            ),
            f", mesh={mesh}",
            (
                Import("os", "environ"),
                Import("torch.distributed.device_mesh", "init_device_mesh"),
            ),
        )
    if settings.fsdp_bf16:
        policy, whole = (fresh(facts, home.statement, n) for n in ("policy", "root_policy"))
        yield _Extra(
            (
                f"{policy} = {_BF16})",
                f"{whole} = {_BF16}, output_dtype=float32)  # a loss is as precise as it was",
            ),
            f", mp_policy={policy}",
            (
                Import(_FSDP, "MixedPrecisionPolicy"),
                Import("torch", "bfloat16"),
                Import("torch", "float32"),
            ),
            f", mp_policy={whole}",
        )
    if settings.fsdp_offload:
        offload = fresh(facts, home.statement, "offload")
        yield _Extra(
            (f'{offload} = CPUOffloadPolicy(pin_memory=local_device().type == "cuda")',),
            f", offload_policy={offload}",
            (Import(_FSDP, "CPUOffloadPolicy"),),
        )


def _inside(facts: Facts, home: Home, model: str, models: Sequence[Model]) -> str:
    """What has the model's hooks: not what ``torch.compile`` has put around it before.

    Hooks of ``fully_shard`` end a graph. What is compiled then are the blocks, all from one graph.
    """
    shards, made = Shards.of(facts), {whole(t).born for one in models for t in one.things}
    names = list[str]()
    for call in facts.named("torch.compile"):
        given = call.args[0].of(Kind.MODEL, Kind.WRAPPED) if call.args else ()
        if any(whole(t).born in made and not shards.is_sharded(t, call.order) for t in given):
            node = facts.tree(call.site).statement(call.site)
            targets = node.targets if isinstance(node, ast.Assign) else ()
            names += [ast.unparse(t) for t in targets if not call.where.guards] or [""]
    if not names:
        return model
    return (
        f"{model}._orig_mod" if {*names} == {model} else f'getattr({model}, "_orig_mod", {model})'
    )


def with_argument(lines: Sequence[str], given: str) -> list[str]:
    """These lines, with an argument more (``, mesh=mesh``) for each ``fully_shard``."""
    return [line.replace(")", f"{given})") if "fully_shard(" in line else line for line in lines]


def unit_lines(
    facts: Facts, site: Site, model: str, things: Sequence[Thing], settings: Settings
) -> tuple[list[str], set[Import]]:
    """The loops over what is sharded before the model itself, and their imports."""
    block, name = (fresh(facts, site, one) for one in ("block", "name"))
    lines, imports = list[str](), set[Import]()
    if settings.fsdp_wrap:
        names = ", ".join(f'"{one}"' for one in settings.fsdp_wrap)
        if settings.fsdp_recompute:
            imports = {Import(_WRAPPERS, "apply_activation_checkpointing")}
            asked = f"lambda {block}: type({block}).__name__ in ({names},)"
            lines.append(f"apply_activation_checkpointing({model}, check_fn={asked})")
        return [
            *lines,
            f"for {block} in reversed([*{model}.modules()]):  # those inside of others first",
            f"    if type({block}).__name__ in ({names},):",
            f"        fully_shard({block})",
        ], imports
    for path in blocks(facts, things):
        whole = f"{model}.{path}"
        if settings.fsdp_recompute:
            imports = {Import(_WRAPPERS, "checkpoint_wrapper")}
            lines += [
                f"for {name}, {block} in {whole}.named_children():",
                f"    {whole}.register_module({name}, checkpoint_wrapper({block}))",
            ]
        lines += [f"for {block} in {whole}:", f"    fully_shard({block})"]
    if settings.fsdp_min_params and (parts := units(facts, things)):
        part, own = (fresh(facts, site, one) for one in ("part", "p"))
        size = (
            f"sum({own}.numel() for {own} in {part}.parameters() if not isinstance({own}, DTensor))"
        )
        lines += [
            f"for {part} in ({', '.join(f'{model}.{path}' for path in parts)},):",
            f"    if {size} >= {settings.fsdp_min_params:_}:",
            f"        fully_shard({part})",
        ]
        imports = {*imports, Import("torch.distributed.tensor", "DTensor")}
    return lines, imports


def _converted(model: str, sync_batchnorm: bool) -> list[str]:
    """Modules are replaced before some of them are sharded."""
    if not sync_batchnorm:
        return []
    return [
        'if local_device().type == "cuda":',
        f"    SyncBatchNorm.convert_sync_batchnorm({model})",
    ]


def _dealt(units: Sequence[str]) -> list[str]:
    """These lines, with rank 0's weights for each block before it is sharded: one by one."""
    lines = list[str]()
    for line in units:
        before, shards, given = line.partition("fully_shard(")
        block = given.partition(",")[0].rstrip(")")
        lines += [f"{before}ready_to_shard({block})", line] if shards else [line]
    return lines


def _kept(facts: Facts, home: Home, units: Sequence[str]) -> list[str]:
    """These lines, with a hook for each block: its weights stay where a backward comes.

    What computes without gradients would leave weights behind that the next step knows nothing of.
    """
    block = fresh(facts, home.statement, "block")
    hook = (
        f"{block}.register_forward_pre_hook(  # weights stay for a backward only",
        f"    lambda {block}, _: {block}.set_reshard_after_forward(not is_grad_enabled())",
        ")",
    )
    lines = list[str]()
    for line in units:
        before, shards, _ = line.partition("fully_shard(")
        lines += [line, *((before + one for one in hook) if shards else ())]
    return lines


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
