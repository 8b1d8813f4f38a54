"""DDP953: prepare_data sets what other processes do not have."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import DATA_MODULE, MODULE, fitted, several
from ddpify.rules.shared.fields import ClassField, fields_of

_PREPARE = "prepare_data"
_SETUP = """    def setup(self, stage):
        self.x = torch.load(self.path, map_location="cpu")

"""
_CENTRED = 'self.x = torch.load(self.path, map_location="cpu") - self.mean'


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per attribute that only ``prepare_data`` sets and others read."""
    if not several(run):
        return
    for _, cls in fitted(run):
        method = cls.method(_PREPARE)
        if method is None or not cls.inherits(DATA_MODULE, MODULE):
            continue
        fix = _handed_on(cls, method)
        for one in fields_of(method):
            if one.is_set and _is_missed(cls, one.name):
                yield Finding(
                    "DDP953",
                    one.site,
                    "prepare_data runs on one process per node: the others have no"
                    f" self.{one.name}, or that of __init__",
                    Severity.ERROR,
                    fix,
                    advice="write files in prepare_data, set attributes in setup",
                )


def _handed_on(cls: ClassDefinition, prepare: FunctionDefinition) -> tuple[Edit, ...]:
    """Rank 0 gives the others what it has prepared, before ``setup`` does anything.

    All have a value by then: that of ``__init__``. A data module that a script sets up by hand has
    no Trainer yet, and one process no others.
    """
    setup, made = cls.methods.get("setup"), cls.methods.get("__init__")
    if setup is None or made is None or not cls.inherits(DATA_MODULE):
        return ()
    if not isinstance(setup.node, ast.FunctionDef):
        return ()
    prepared = dict.fromkeys(f.name for f in fields_of(prepare) if f.is_set)
    methods = [m for info in cls.mro() for m in info.methods.values()]
    later = {f.name for m in methods for f in _set_beside(m)}
    names = [name for name in prepared if name not in later]
    if not {*names} <= {f.name for f in fields_of(made) if f.is_set and f.value is not None}:
        return ()
    body = setup.node.body
    first = body[1] if len(body) > 1 and ast.get_docstring(setup.node) is not None else body[0]
    kept = ", ".join(f"self.{name}" for name in names)
    given = f"({kept})" if len(names) > 1 else kept
    code = f"if self.trainer is not None:\n    {kept} = self.trainer.strategy.broadcast({given})"
    return (Edit(How.BEFORE, setup.module.site(first), code),)


def _set_beside(method: FunctionDefinition) -> Iterator[ClassField]:
    """What a method sets that neither makes the object nor prepares data."""
    if method.name not in ("__init__", _PREPARE):
        yield from (one for one in fields_of(method) if one.is_set)


def _is_missed(cls: ClassDefinition, name: str) -> bool:
    """Whether another method reads the attribute and none, nor the class, gives it a value.

    What ``__init__`` gives stands for it until ``prepare_data`` has the right one.
    """
    others = {m.name: m for one in cls.mro() for m in one.methods.values() if m.name != _PREPARE}
    found = [(m, one) for m in others.values() for one in fields_of(m) if one.name == name]
    given = any(one.is_set and m.name != "__init__" for m, one in found)
    return not given and name not in cls.assigns and not all(one.is_set for _, one in found)


RULE = Rule(
    "DDP953",
    "state-set-in-prepare-data",
    "Lightning calls prepare_data on one process of each node. What it assigns to self exists there"
    " only: the others stop with an AttributeError, or go on with what __init__ gave.",
    "LightningDataModule.prepare_data; lightning#2515; BUGS D14",
    lint=lint,
    bad=(
        changed(
            LIGHTNING,
            (
                "torch.save(torch.randn(256, 8), self.path)",
                "self.x = torch.randn(256, 8)  # DDP953",
            ),
            (_SETUP, ""),
        ),
        changed(
            LIGHTNING,
            ("        self.path = path\n", "        self.path, self.mean = path, 0.0\n"),
            ("    def setup", "        self.mean = 0.5  # DDP953\n\n    def setup"),
            ('self.x = torch.load(self.path, map_location="cpu")', _CENTRED),
        ),
    ),
    good=(LIGHTNING,),
)
