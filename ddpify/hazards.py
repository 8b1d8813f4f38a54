"""What in a program of Lightning's Trainer is not followed on several devices: refused, for now.

It is looked for by the names that Lightning and torch give it. What decides over samples and steps
else is found by rules (DDP965 and those behind it).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.lightning import configured
from ddpify.lightning.manual import faults
from ddpify.outcome import Refusal
from ddpify.settings import Settings
from ddpify.strategies import of

_DRAWN: Final = ("sampler", "batch_sampler")
_WHY: Final = (
    "samples that a sampler chooses are dealt by Lightning, but drawn by each process for itself:"
    " is it the same on all? deal them by hand"
)
_SHARDS: Final = (
    "shards are only written where the code makes the Trainer, not a configuration: migrate it with"
    " --strategy ddp"
)


_UNWRITTEN: Final = {
    "lr_scale": "multiply the rate by self.trainer.world_size in configure_optimizers",
    "find_unused": 'give the Trainer strategy="ddp_find_unused_parameters_true"',
    "static_graph": "give the Trainer strategy=DDPStrategy(static_graph=True)",
    "bucket_cap": "give the Trainer strategy=DDPStrategy(bucket_cap_mb=…)",
}


def hazards(facts: Facts, settings: Settings) -> Iterator[Refusal]:
    """One refusal per place, and per option that asks for what is not written."""
    for name, way in _UNWRITTEN.items():
        if getattr(settings, name) not in (None, False, "none", "auto", "off"):
            site, option = facts.trainers[0], name.replace("_", "-")
            why = f"--{option} is not written into Lightning projects: {way}"
            yield Refusal(f"{site}: {why}", site)
    whole = settings.batch_size == "global"  # rank 0 draws, and its batches are divided
    for tree, node, why in (
        *faults(facts),
        *configured.faults(facts),
        *(() if whole else _drawn(facts)),
        *(_sharded(facts) if of(settings).shards else ()),
    ):
        site = tree.site(node)
        yield Refusal(f"{site}: {why}", site)


def _sharded(facts: Facts) -> Iterator[tuple[Tree, ast.AST, str]]:
    for one in configured.configured(facts):
        yield one.tree, one.call, _SHARDS


def _drawn(facts: Facts) -> Iterator[tuple[Tree, ast.AST, str]]:
    for tree in facts.trees.values():
        for node in tree.nodes():
            if not isinstance(node, ast.keyword) or node.arg not in _DRAWN:
                continue
            if not isinstance(node.value, ast.Constant):
                yield tree, node, _WHY
