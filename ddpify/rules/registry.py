"""All rules, in the order of their codes."""

from __future__ import annotations

import importlib
import pkgutil

import ddpify.rules as package
from ddpify.rules.base import Rule


def all_rules() -> tuple[Rule, ...]:
    """The RULE of every module named ``ddpNNN_…`` in a family's folder."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    modules = {name.rpartition(".")[2]: name for _, name, _ in found}
    rules = sorted(name for name in modules if name.startswith("ddp"))
    return tuple(importlib.import_module(modules[name]).RULE for name in rules)
