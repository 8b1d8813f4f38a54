"""DDP965, DDP966: arguments of a Trainer that count batches, or have loaders made anew.

All processes take their parts of the same batches in training, so ``limit_train_batches``,
``val_check_interval``, ``max_steps``, ``accumulate_grad_batches`` and ``log_every_n_steps`` count
what they did; with whole batches for each process they count others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ddpify.configs.nodes import ConfigNode
from ddpify.facts.model import Facts
from ddpify.lightning.configured import configured
from ddpify.lightning.devices import trainers
from ddpify.rules.base import Finding, Severity
from ddpify.settings import Settings
from ddpify.source import Site

_BATCHES: Final = "DDP965"
_SAMPLES: Final = "DDP966"
_ANEW: Final = "overfit_batches"
_LIMITS: Final = ("limit_val_batches", "limit_test_batches")
_STEPS: Final = (_ANEW, "limit_train_batches", "max_steps", "val_check_interval")
_MADE: Final = "Lightning makes another loader for this: its batches are not divided"
_COUNTS: Final = (
    "a whole number is one of batches in each process: N processes evaluate N times as many"
)
_SHARE: Final = (
    "each process rounds this part of its own batches down: N processes may leave out more than one"
    " does, and Lightning ends where nothing is left"
)
_GROWN: Final = "this counts batches of a process, of which N take N times as many samples"
_UNKNOWN: Final = object()
_NONE: Final = ("", "null", "~", "false", "False")


def findings(facts: Facts, settings: Settings) -> Iterator[Finding]:
    """One finding per argument that is not the same for several processes, or may not be."""
    yield from _configured(facts, settings)
    for tree, call in trainers(facts):
        for one in call.keywords:
            yield from of_argument(one.arg or "", one.value, tree.site(one.value), settings)


def _configured(facts: Facts, settings: Settings) -> Iterator[Finding]:
    """The same of what configurations say; a file that is chosen for a trial is only named."""
    for trainer in configured(facts):
        for section in trainer.sections:
            always = trainer.commandline or "_target_" in section.entries
            for one in of_section(section, settings):
                trial = one.severity is Severity.ERROR and not always
                yield replace(one, severity=Severity.WARNING) if trial else one


def of_section(section: ConfigNode, settings: Settings) -> Iterator[Finding]:
    """What is found of the arguments in a section of a config."""
    for name, one in section.entries.items():
        yield from of_argument(name, one.text or "", one.site, settings)


def of_argument(
    name: str, written: ast.expr | str, site: Site, settings: Settings
) -> Iterator[Finding]:
    """What is found of one argument, at the Trainer or in its section of a config."""
    value, kept = _value(written), settings.batch_size == "per-rank"
    if value is None or value == 0:
        return
    if name == _ANEW and not kept:
        yield Finding(_BATCHES, site, _MADE, Severity.ERROR, advice="leave it out")
    elif name in _STEPS and kept and isinstance(value, int) and value > 0:
        yield Finding(_BATCHES, site, _GROWN, Severity.NOTE, advice="an N-th of it may be meant")
    elif name in _LIMITS and not isinstance(value, float):
        advice = "give a part (0.5) of the batches"
        yield Finding(_SAMPLES, site, _COUNTS, Severity.WARNING, advice=advice)
    elif name in _LIMITS and value != 1.0:
        advice = "leave it out to evaluate the same samples"
        yield Finding(_SAMPLES, site, _SHARE, Severity.NOTE, advice=advice)


def _value(written: ast.expr | str) -> object:
    """The constant that is written in Python, or in YAML."""
    try:
        return None if written in _NONE else ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return _UNKNOWN
