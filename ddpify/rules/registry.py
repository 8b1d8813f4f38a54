"""All rules, in the order of their codes."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Final

import ddpify.rules as package
from ddpify.rules.base import Rule
from ddpify.rules.conversion import fsdp1

# What they are about is no question where all ranks make the same batches, and the same of them.
OF_SHARES: Final = frozenset(
    """DDP111 DDP201 DDP205 DDP206 DDP217 DDP218 DDP219 DDP317 DDP401 DDP402 DDP403 DDP404
    DDP406 DDP419 DDP701 DDP702 DDP703""".split()
)


@cache
def all_rules() -> tuple[Rule, ...]:
    """The RULE of every module named ``ddpNNN_…`` in a family's folder."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    modules = {name.rpartition(".")[2]: name for _, name, _ in found}
    rules = sorted(name for name in modules if name.startswith("ddp"))
    return tuple(importlib.import_module(modules[name]).RULE for name in rules)


# Of models that are sharded, whoever wrapped them before.
OF_SHARDS: Final = frozenset(
    """DDP308 DDP317 DDP405 DDP602 DDP603 DDP901 DDP903 DDP904 DDP905 DDP907 DDP908""".split()
)


def conversions() -> tuple[Rule, ...]:
    """The rules that alone judge programs that are distributed already."""
    return (fsdp1.RULE,)


# Of modules that Lightning's Trainer trains, where they are to be sharded.
_OF_TRAINERS: Final = frozenset({"DDP973", "DDP974"})


def of_trainers() -> tuple[Rule, ...]:
    """The rules whose ``check`` judges programs in Lightning's Trainer."""
    return tuple(rule for rule in all_rules() if rule.id in _OF_TRAINERS)
