"""A Trainer that has its processes share one model: what becomes of its arguments, or why not. ::

    devices = device_count() or 1
    trainer = Trainer(
        devices=devices,
        strategy=(
            ModelParallelStrategy(
                data_parallel_size=devices,
                tensor_parallel_size=1,
                save_distributed_checkpoint=False,
            )
            if devices != 1
            else "auto"
        ),
        inference_mode=False,
    )

ModelParallelStrategy's own "auto" is the number of nodes for the one size, and that of a node's
devices for the other, and its sampler deals by the first: so the product has to be written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ddpify.facts.model import Facts
from ddpify.rules.base import Edit, How, Import
from ddpify.rules.edits import fresh
from ddpify.settings import Settings
from ddpify.source import Site

_STRATEGY: Final = "ModelParallelStrategy"
_UNSAID: Final = (None, 1, -1, "1", "-1", "auto")  # one device, or as many as there are
_PRECISIONS: Final = (None, 32, "32", "32-true", "bf16-mixed")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
_OPTIONS: Final = {
    "fsdp_bf16": 'give the Trainer precision="bf16-mixed"',
    "fsdp_offload": "Lightning moves the shards back to the device",
    "fsdp_hybrid": "the mesh is Lightning's",
    "fsdp_recompute": "Lightning loads no checkpoint by the names that it gives to weights",
    "fsdp_meta": "write it into configure_model",
}


@dataclass(frozen=True, eq=False)
class TrainerArguments:
    """A call that makes a Trainer, and its arguments as they are written."""

    facts: Facts
    site: Site

    @cached_property
    def node(self) -> ast.Call | None:
        found = self.facts.tree(self.site).expression(self.site)
        return found if isinstance(found, ast.Call) else None

    @cached_property
    def given(self) -> dict[str, ast.expr]:
        found = self.node.keywords if self.node is not None else ()
        return {one.arg: one.value for one in found if one.arg is not None}

    def constant(self, name: str) -> object:
        """What is written for an argument; None for none, and where it is no constant."""
        node = self.given.get(name)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = getattr(node.operand, "value", None)
            return -inner if isinstance(inner, int) else None
        return node.value if isinstance(node, ast.Constant) else None

    @property
    def is_sharded(self) -> bool:
        """Whether it has the strategy already."""
        names = ast.walk(self.given["strategy"]) if "strategy" in self.given else ()
        return any(_STRATEGY in (getattr(n, "id", ""), getattr(n, "attr", "")) for n in names)

    @property
    def _is_unsaid(self) -> bool:
        """Whether the number of devices is that of one process, or is left to Lightning."""
        node = self.given.get("devices")
        plain = node is None or isinstance(node, ast.Constant | ast.UnaryOp)
        return plain and self.constant("devices") in _UNSAID

    def why_not(self, settings: Settings) -> Iterator[str]:
        """Why these arguments, or the options, are not followed: one sentence each."""
        for name, instead in _OPTIONS.items():
            if getattr(settings, name):
                option = name.replace("_", "-")
                yield f"--{option} is not written into Lightning modules: {instead}"
        if not settings.fsdp_reshard:
            yield "--no-fsdp-reshard is not written into Lightning modules: change it there"
        if settings.checkpoint != "whole":
            option = f"--checkpoint {settings.checkpoint} is not written into Lightning projects"
            yield f"{option}: set save_distributed_checkpoint yourself"
        statement = self.facts.tree(self.site).statement(self.site)
        stars = self.node is None or len(self.given) < len(self.node.keywords)
        if stars or not isinstance(statement, _SIMPLE):
            yield "the Trainer's arguments have to be written out where it is made"
        yield from self._unlike()

    def _unlike(self) -> Iterator[str]:
        strategy = self.constant("strategy")
        if "strategy" in self.given and not str(strategy).startswith(("auto", "ddp")):
            yield "the strategy is set elsewhere: leave it out"
        if self._is_unsaid and self.constant("accelerator") not in (None, "auto", "gpu", "cuda"):
            yield "how many processes there are is not said: give `devices` a variable"
        if self.constant("precision") not in _PRECISIONS:
            yield 'this precision was not tried on shards: "32-true" and "bf16-mixed" were'
        if self.constant("use_distributed_sampler") is False:
            yield "ranks with unequal numbers of batches wait for each other: let Lightning deal"
        if "plugins" in self.given:
            yield "plugins may change precision and checkpoints, which are the strategy's now"

    def edits(self) -> Iterator[Edit]:
        """The changes of the call, and the statement before it."""
        facts, site = self.facts, self.site
        tree = facts.tree(site)
        statement = tree.statement(site)
        given, devices = self.given.get("devices"), ""
        if given is not None and not self._is_unsaid:
            devices = ast.unparse(given)
        if not devices.replace(".", "").isidentifier() and not devices.isdigit():
            named = fresh(facts, site, "devices")
            counted = (Import("torch.cuda", "device_count"),) * (not devices)
            code = f"{named} = {devices or 'device_count() or 1'}"
            yield Edit(How.BEFORE, tree.site(statement or tree.module), code, imports=counted)
            yield Edit(How.ARGUMENT, site, named, "devices")
            devices = named
        size = self._by_nodes(devices)
        package = self._package
        code = (
            f"{_STRATEGY}(data_parallel_size={size}, tensor_parallel_size=1,"
            f' save_distributed_checkpoint=False) if {size} != 1 else "auto"'
        )
        wanted = (Import(f"{package}.strategies", _STRATEGY),)
        yield Edit(How.ARGUMENT, site, code, "strategy", wanted)
        if "inference_mode" not in self.given or self.constant("inference_mode") is not False:
            yield Edit(How.ARGUMENT, site, "False", "inference_mode")

    def _by_nodes(self, devices: str) -> str:
        nodes = self.given.get("num_nodes")
        if nodes is None or self.constant("num_nodes") == 1:
            return devices
        text = ast.unparse(nodes)
        return f"{devices} * {text}" if isinstance(nodes, _ATOMS) else f"{devices} * ({text})"

    @property
    def _package(self) -> str:
        calls = (call.name for call in self.facts.everywhere if call.site == self.site)
        old = any(name.startswith("pytorch_lightning") for name in calls)
        return "pytorch_lightning" if old else "lightning.pytorch"


_ATOMS = (ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.Subscript)
