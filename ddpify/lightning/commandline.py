"""DDP960, DDP961 and DDP964 of LightningCLI: the defaults that its Trainer has in the code.

They are an argument (``trainer_defaults={…}``) of LightningCLI, or of its ``__init__`` where a
class of the project calls that, or ``parser.set_defaults({"trainer.devices": 1})``. Files and the
command line win over them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.configs.programs import entries
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.lightning.configured import ConfiguredTrainer, class_of, configured
from ddpify.lightning.devices import (
    ADVICE,
    ALL,
    ENVIRON,
    LEFT_OUT,
    LOOKS,
    NORMS,
    NUMBER,
    ONE,
    PLAIN,
    RULE,
    UNUSED,
    normalises,
)
from ddpify.lightning.manual import several_optimizers
from ddpify.lightning.numbers import ones
from ddpify.rules.base import Edit, Finding, How, Import, Severity

_DEFAULTS: Final = "trainer_defaults"
_POSITION: Final = 5
_CUDA: Final = Import("torch", "cuda")
_UNREAD: Final = "the defaults of the Trainer are not written out here: their devices are not read"
_OVER: Final = ("cpu", "mps")


def findings(facts: Facts) -> Iterator[Finding]:
    """One finding per default that says one device, or lacks what several need."""
    for trainer in configured(facts):
        if trainer.commandline:
            yield from _of(facts, trainer)


def _of(facts: Facts, trainer: ConfiguredTrainer) -> Iterator[Finding]:
    cls = class_of(facts, trainer)
    tree, call = (trainer.tree, trainer.call) if cls is None else _initial(*cls, trainer)
    given = _given(call)
    if given is not None and not isinstance(given, ast.Dict):
        yield Finding(RULE, tree.site(given), _UNREAD, Severity.NOTE, advice=ADVICE)
    named = entries(given)
    places = [(tree, named["devices"])] if "devices" in named else []
    for where, node in (*places, *(_set(*cls, "trainer.devices") if cls is not None else ())):
        for one in ones(node):
            edit = Edit(How.REPLACE, where.site(one), ALL, imports=(ENVIRON,))
            yield Finding(RULE, edit.site, ONE, Severity.WARNING, (edit,))
    if normalises(facts) and not _says(trainer, named, "sync_batchnorm") and _may_be_gpu(trainer):
        code = '"sync_batchnorm": cuda.is_available()'
        yield _missing(tree, call, given, (NORMS, PLAIN), code, (_CUDA,))
    if several_optimizers(facts) and not _says(trainer, named, "strategy"):
        code = f'"strategy": "{LOOKS}" if {NUMBER} > 1 else "auto"'
        yield _missing(tree, call, given, (UNUSED, LEFT_OUT), code, (ENVIRON, _CUDA))


def _missing(
    tree: Tree,
    call: ast.Call,
    given: ast.expr | None,
    rule: tuple[str, str],
    code: str,
    imports: tuple[Import, ...],
) -> Finding:
    """A default that is written beside those that there are."""
    if given is not None and (not isinstance(given, ast.Dict) or None in given.keys):
        advice = f"give {_DEFAULTS} {code}"
        return Finding(rule[0], tree.site(call), rule[1], Severity.WARNING, advice=advice)
    if given is None:
        edit = Edit(How.ARGUMENT, tree.site(call), f"{{{code}}}", _DEFAULTS, imports)
    else:
        edit = Edit(How.REPLACE, tree.site(given), f"{{}} | {{{code}}}", imports=imports)
    return Finding(rule[0], tree.site(call), rule[1], Severity.WARNING, (edit,))


def _says(trainer: ConfiguredTrainer, named: dict[str, ast.expr], name: str) -> bool:
    return name in named or bool(trainer.texts(name))


def _may_be_gpu(trainer: ConfiguredTrainer) -> bool:
    """Whether a file, or none, leaves it to the machine what the Trainer trains on."""
    said = trainer.texts("accelerator")
    return not said or any(one not in _OVER for one in said)


def _initial(tree: Tree, cls: ast.ClassDef, trainer: ConfiguredTrainer) -> tuple[Tree, ast.Call]:
    """``super().__init__(Net, Rows, …)`` of such a class, or the call that makes one."""
    for node in tree.nodes(cls):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
            return tree, node
    return trainer.tree, trainer.call


def _given(call: ast.Call) -> ast.expr | None:
    named = next((one.value for one in call.keywords if one.arg == _DEFAULTS), None)
    return named or (call.args[_POSITION] if len(call.args) > _POSITION else None)


def _set(tree: Tree, cls: ast.ClassDef, name: str) -> Iterator[tuple[Tree, ast.expr]]:
    """What ``parser.set_defaults({name: …})`` of a class gives."""
    for node in tree.nodes(cls):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "set_defaults":
            for one in node.args:
                found = entries(one).get(name)
                if found is not None:
                    yield tree, found
