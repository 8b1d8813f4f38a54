"""DDP954: what a rank_zero_only function returns is None elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RANK1, Call
from ddpify.ranks.modules import FunctionInfo
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.fields import dotted

_TRAINER = "    trainer = L.Trainer"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per such result that other ranks take apart."""
    for call in run.calls:
        if call.target is None or not call.ranks & RANK1 or call.alone:
            continue
        if _is_rank_zero_only(call.target) and _gives(call.target) and _taken_apart(run, call):
            yield Finding(
                "DDP954",
                call.site,
                "on all ranks but 0 this is None, and what follows takes it apart there",
                Severity.ERROR,
                advice="compute it on all ranks, or broadcast it",
                because=((call.target.site, "runs on rank 0 only"),),
            )


def _is_rank_zero_only(info: FunctionInfo) -> bool:
    decorators = getattr(info.node, "decorator_list", [])
    names = (dotted(d.func if isinstance(d, ast.Call) else d) for d in decorators)
    return any(_exported(info, name).endswith(".rank_zero_only") for name in names)


def _exported(info: FunctionInfo, name: str) -> str:
    root, _, rest = name.partition(".")
    origin, attribute, _ = info.module.imports.get(root, ("", "", 0))
    full = ".".join(part for part in (origin, attribute, rest) if part)
    return full if full.startswith(("lightning", "pytorch_lightning")) else ""


def _gives(info: FunctionInfo) -> bool:
    """Whether a function returns something."""
    returned = [n.value for n in ast.walk(info.node) if isinstance(n, ast.Return)]
    return any(not isinstance(value, (ast.Constant, type(None))) for value in returned)


def _taken_apart(run: Run, call: Call) -> bool:
    """Whether ranks other than 0 index the result or ask for an attribute of it."""
    body = call.function.node if call.function is not None else call.module.tree
    name = ""
    for node in ast.walk(body):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and node.value is call.node:
            return True
        if isinstance(node, ast.Assign) and node.value is call.node and len(node.targets) == 1:
            name = dotted(node.targets[0])
    return bool(name) and any(_apart(node, name) for node in _elsewhere(run, call))


def _elsewhere(run: Run, call: Call) -> Iterator[ast.AST]:
    """The calls of a function that are evaluated for later ones, which other ranks make."""
    for later in run.calls:
        near = later.function is call.function and later.module is call.module
        if near and later.order > call.order and later.ranks & RANK1 and not _looked_at(later):
            yield from ast.walk(later.node)


def _looked_at(call: Call) -> bool:
    """Whether a condition of its own, not known here, stands before the call."""
    return any(not guard.test.known for guard in call.guards)


def _apart(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Subscript):
        return dotted(node.value) == name
    if isinstance(node, ast.BinOp):
        return name in (dotted(node.left), dotted(node.right))
    return isinstance(node, ast.Attribute) and dotted(node.value) == name


RULE = Rule(
    "DDP954",
    "rank-zero-only-result-used",
    "A function under @rank_zero_only runs on rank 0; everywhere else the call gives None at once"
    " (Lightning 2.6, measured). An attribute or an element of it ends those ranks with an error.",
    "lightning.pytorch.utilities.rank_zero_only; BUGS L20",
    lint=lint,
    bad=(
        changed(
            LIGHTNING,
            (
                _TRAINER,
                '    path = name_of("runs")  # DDP954\n    print(path.upper())\n' + _TRAINER,
            ),
        ),
    ),
    good=(
        changed(
            LIGHTNING,
            (
                _TRAINER,
                '    path = name_of("runs")\n'
                "    if path is not None:\n        print(path.upper())\n" + _TRAINER,
            ),
        ),
    ),
)
