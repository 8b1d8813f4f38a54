"""A LightningModule that is sharded when its Trainer asks for that, as plain PyTorch. ::

    def configure_model(self):
        if self.device_mesh is None or isinstance(self, FSDPModule):
            return  # one device has all of it; a second call finds it sharded
        mesh = self.device_mesh["data_parallel"]
        weights = self.state_dict()
        for block in self.net.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self, mesh=mesh, reshard_after_forward=True)
        for step in ("training_step", "validation_step"):
            register_fsdp_forward_method(self, step)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(self, weights, options=options)  # rank 0's, as with DDP

Lightning calls steps, not the module: hooks of ``fully_shard`` on the module are those of its steps
then, whatever of itself they call.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import last_name
from ddpify.facts.values import Kind, Thing
from ddpify.rules.base import Edit, How, Import
from ddpify.rules.shared.fields import own
from ddpify.rules.shared.sharding import unit_lines, with_argument
from ddpify.settings import Settings

STEPS: Final = ("training_step", "validation_step", "test_step")
HOOK: Final = "configure_model"
_FSDP: Final = "torch.distributed.fsdp"
_STATES: Final = "torch.distributed.checkpoint.state_dict"
_IMPORTS: Final = (
    *(
        Import(_FSDP, name)
        for name in "FSDPModule fully_shard register_fsdp_forward_method".split()
    ),
    *(Import(_STATES, name) for name in ("StateDictOptions", "set_model_state_dict")),
)


@dataclass(frozen=True, eq=False)
class ShardedModule:
    """The one LightningModule of a program: its class, and an object of it."""

    facts: Facts
    info: ClassInfo
    thing: Thing

    @cached_property
    def methods(self) -> dict[str, ast.FunctionDef]:
        """The methods of its class and of the bases in the project, by name."""
        found = dict[str, ast.FunctionDef]()
        for info in self.info.mro():
            own = (node for node in info.node.body if isinstance(node, ast.FunctionDef))
            found = {**{node.name: node for node in own}, **found}
        return found

    @cached_property
    def models(self) -> dict[str, tuple[Thing, ...]]:
        """The attributes that are modules."""
        found = ((name, value.of(Kind.MODEL)) for name, value in self.thing.attrs.items())
        return {name: things for name, things in found if things}

    def reached(self, *names: str) -> set[str]:
        """The methods that run where these do: those they name, too."""
        found, left = set[str](), [name for name in names if name in self.methods]
        while left:
            name = left.pop()
            if name in found:
                continue
            found.add(name)
            inner = {own(node) for node in ast.walk(self.methods[name])}
            left += [one for one in inner if one in self.methods]
        return found


def modules(facts: Facts) -> list[ShardedModule]:
    """The LightningModules that the program makes."""
    found = dict[ClassInfo, Thing]()
    for thing in (thing for value in facts.values.values() for thing in value.things):
        info = thing.ref
        if thing.kind is not Kind.CLASS and isinstance(info, ClassInfo) and is_module(info):
            found.setdefault(info, thing)
    return [ShardedModule(facts, info, thing) for info, thing in found.items()]


def is_module(info: ClassInfo) -> bool:
    """Whether a class of the project is a LightningModule."""
    return any(name.endswith(".LightningModule") for name in info.external_bases())


def hook(module: ShardedModule, settings: Settings) -> Edit | None:
    """The method that shards the module, after its constructor; None if it has no constructor."""
    facts, info = module.facts, module.info
    init = next((n for n in info.node.body if getattr(n, "name", "") == "__init__"), None)
    if not isinstance(init, ast.FunctionDef):
        return None
    tree = facts.tree(info.site)
    site, inner = tree.site(init), tree.site(init.body[0])
    units, wanted = unit_lines(facts, inner, "self", (module.thing,), settings)
    names = [f'"{name}"' for name in STEPS if name in module.methods]
    steps = f"({', '.join(names)}{',' * (len(names) == 1)})"
    code = "\n".join(
        (
            f"def {HOOK}(self):",
            "    if self.device_mesh is None or isinstance(self, FSDPModule):",
            "        return  # one device has all of it; a second call finds it sharded",
            '    mesh = self.device_mesh["data_parallel"]',
            "    weights = self.state_dict()",
            *(f"    {line}" for line in with_argument(units, ", mesh=mesh")),
            "    fully_shard(self, mesh=mesh, reshard_after_forward=True)",
            f"    for step in {steps}:",
            "        register_fsdp_forward_method(self, step)",
            "    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)",
            "    set_model_state_dict(self, weights, options=options)  # rank 0's, as with DDP",
        )
    )
    return Edit(How.AFTER, site, code, imports=tuple(sorted({*_IMPORTS, *wanted})))


def shards_itself(module: ShardedModule) -> bool:
    """Whether its own ``configure_model`` shards it."""
    own = module.methods.get(HOOK)
    return own is not None and "fully_shard" in map(last_name, ast.walk(own))
