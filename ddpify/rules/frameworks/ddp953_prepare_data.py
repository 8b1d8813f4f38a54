"""DDP953: prepare_data sets what other processes do not have."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.ranks.modules import ClassInfo, FunctionInfo
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.fields import own
from ddpify.rules.frameworks.lightnings import DATA_MODULE, MODULE, fitted, several

_PREPARE = "prepare_data"
_SETUP = """    def setup(self, stage):
        self.x = torch.load(self.path, map_location="cpu")

"""


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per attribute that only ``prepare_data`` sets and others read."""
    if not several(run):
        return
    for _, cls in fitted(run):
        method = cls.method(_PREPARE)
        if method is None or not cls.inherits(DATA_MODULE, MODULE):
            continue
        for node in ast.walk(method.node):
            name = own(node)
            if name and _is_set(node) and _missed(cls, name):
                yield Finding(
                    "DDP953",
                    method.module.site(node),
                    f"prepare_data runs on one process per node: the others have no self.{name}",
                    Severity.ERROR,
                    advice="write files in prepare_data, set attributes in setup",
                )


def _is_set(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _missed(cls: ClassInfo, name: str) -> bool:
    """Whether another method reads the attribute and none gives it a value."""
    others = {m.name: m for one in cls.mro() for m in one.methods.values() if m.name != _PREPARE}
    if any(_gives(method, name) for method in others.values()):
        return False
    return name not in cls.assigns and any(_reads(method, name) for method in others.values())


def _gives(method: FunctionInfo, name: str) -> bool:
    """Whether a method sets the attribute; ``None`` in ``__init__`` is no value."""
    for node in ast.walk(method.node):
        if _is_set(node) and own(node) == name:
            return not (method.name == "__init__" and _is_none(method, node))
    return False


def _is_none(method: FunctionInfo, target: ast.AST) -> bool:
    """Whether an attribute is a target of ``… = None``."""
    plain = (n for n in ast.walk(method.node) if isinstance(n, ast.Assign) and target in n.targets)
    value = next((node.value for node in plain), None)
    return isinstance(value, ast.Constant) and value.value is None


def _reads(method: FunctionInfo, name: str) -> bool:
    return any(
        own(node) == name and isinstance(getattr(node, "ctx", None), ast.Load)
        for node in ast.walk(method.node)
    )


RULE = Rule(
    "DDP953",
    "state-set-in-prepare-data",
    "Lightning calls prepare_data on one process of each node. What it assigns to self exists there"
    " only: the others stop with an AttributeError, or go on with None.",
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
    ),
    good=(LIGHTNING,),
)
