"""All rules, in the order of their codes."""

from __future__ import annotations

import importlib
import pkgutil

import ddpify.rules as package
from ddpify.rules.base import Rule


def all_rules() -> tuple[Rule, ...]:
    """The RULE of every module named ``ddpNNN_…`` in this folder."""
    names = sorted(
        m.name for m in pkgutil.iter_modules(package.__path__) if m.name.startswith("ddp")
    )
    return tuple(importlib.import_module(f"ddpify.rules.{name}").RULE for name in names)
