"""DDP965, DDP966: arguments of a Trainer that count batches, or have loaders made anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.configs.nodes import ConfigNode
from ddpify.facts.model import Facts
from ddpify.lightning.configured import configured
from ddpify.lightning.devices import trainers
from ddpify.rules.base import Finding, Severity

_ANEW: Final = "overfit_batches"
_LIMITS: Final = ("limit_val_batches", "limit_test_batches")
_OFF: Final = ("", "0", "0.0", "null", "~", "false", "False")
_MADE: Final = "Lightning makes another loader for this: its batches are not divided"
_COUNTS: Final = (
    "a whole number is one of batches in each process: N processes evaluate N times as many"
)


def findings(facts: Facts) -> Iterator[Finding]:
    """One finding per argument that is not the same for several processes, or may not be."""
    yield from _configured(facts)
    for tree, call in trainers(facts):
        for one in call.keywords:
            site = tree.site(one.value)
            if one.arg == _ANEW and not _is_off(one.value):
                yield Finding("DDP965", site, _MADE, Severity.ERROR, advice="leave it out")
            elif one.arg in _LIMITS and not _is_share(one.value):
                advice = "give a fraction (0.1) of the batches"
                yield Finding("DDP966", site, _COUNTS, Severity.WARNING, advice=advice)


def _configured(facts: Facts) -> Iterator[Finding]:
    """The same of what configurations say; a file that is chosen for a trial is only named."""
    for trainer in configured(facts):
        for section in trainer.sections:
            always = trainer.commandline or "_target_" in section.entries
            yield from _of_section(section, Severity.ERROR if always else Severity.WARNING)


def _of_section(section: ConfigNode, severity: Severity) -> Iterator[Finding]:
    for name, one in section.entries.items():
        text = one.text or ""
        if name == _ANEW and text not in _OFF:
            yield Finding("DDP965", one.site, _MADE, severity, advice="leave it out")
        elif name in _LIMITS and text not in _OFF and "." not in text:
            advice = "give a fraction (0.1) of the batches"
            yield Finding("DDP966", one.site, _COUNTS, Severity.WARNING, advice=advice)


def _is_off(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _is_share(node: ast.expr) -> bool:
    """A fraction of the batches, or none."""
    return isinstance(node, ast.Constant) and (isinstance(node.value, float) or not node.value)
