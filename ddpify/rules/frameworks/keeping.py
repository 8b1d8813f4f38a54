"""What a class keeps of the batches that its hooks are given, until a hook at the end reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.ranks.hooks import BATCHES, EVALUATION
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.shared.fields import own

_END: Final = "_epoch_end"
_START: Final = "_epoch_start"
_SAME: Final = frozenset("item detach cpu clone float double int".split())
# What a hook says that sees to the other processes' numbers itself.
_AGREES: Final = ("all_gather", "all_reduce", ".reduce(", "gather_", "reduce_", "sync_dist")


@dataclass(frozen=True)
class KeptField:
    """``self.name``, which a batch's hook adds to, and a method that reads it at the end.

    ``how``: "sum" or "mean" of all processes' is that of one process, "list": entries of all in
    turn; "" where this is not known.
    """

    name: str
    how: str
    hook: str
    reader: FunctionDefinition
    first: ast.stmt

    @property
    def evaluated(self) -> bool:
        """Whether the batches are those of an evaluation."""
        return self.hook in EVALUATION


@dataclass(frozen=True)
class _Growth:
    """One place where a hook adds to a field."""

    hook: FunctionDefinition
    node: ast.AST
    value: ast.expr
    listed: bool


def kept_fields(run: Run, cls: ClassDefinition) -> Iterator[KeptField]:
    """The fields of a class that differ between processes when they are read."""
    growths: dict[str, list[_Growth]] = {}
    for name in BATCHES:
        for field, one in _grown(cls.method(name)):
            growths.setdefault(field, []).append(one)
    for field, grown in growths.items():
        hows = {_how(one) for one in grown}
        plain = len(hows) == 1 and not _is_read_elsewhere(run, cls, field)
        for reader in _readers(cls, field) if hows != {"same"} else ():
            if any(word in reader.text for word in _AGREES):
                continue
            known = plain and _is_reset(cls, field, reader) and _is_of_stage(reader, grown)
            yield KeptField(
                field,
                next(iter(hows)) if known else "",
                grown[0].hook.name,
                reader,
                next(one for one in _body(reader) if _mentions(one, field)),
            )


def _grown(hook: FunctionDefinition | None) -> Iterator[tuple[str, _Growth]]:
    """``self.name += value`` and ``self.name.append(value)``."""
    if hook is None:
        return
    for node in ast.walk(hook.node):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            if name := own(node.target):
                yield name, _Growth(hook, node, node.value, listed=False)
        elif isinstance(node, ast.Call) and (name := _of_method(node, "append")) and node.args:
            yield name, _Growth(hook, node, node.args[0], listed=True)


def _of_method(node: ast.AST, method: str) -> str:
    """``name`` of ``self.name.method(…)``."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if not called or node.func.attr != method:  # type: ignore[attr-defined]
        return ""
    return own(node.func.value)  # type: ignore[attr-defined]


def _how(one: _Growth) -> str:
    """What makes all processes' numbers one: "same" if each has what one process has."""
    if one.hook.name in EVALUATION:  # each batch is one process's, whole
        return "list" if one.listed else "sum"
    if isinstance(one.value, ast.Constant):  # steps are counted
        return "same"
    value = _bare(one.value)
    if _is_count(value):
        return "sum"
    return "mean" if isinstance(value, ast.Name) and value.id in _losses(one.hook) else ""


def _bare(value: ast.expr) -> ast.expr:
    """A tensor or number without what makes a number, or a copy, of it."""
    while isinstance(value, ast.Call):
        func = value.func
        if isinstance(func, ast.Attribute) and func.attr in _SAME and not value.args:
            value = func.value
        elif isinstance(func, ast.Name) and func.id in _SAME and len(value.args) == 1:
            value = value.args[0]
        else:
            break
    return value


def _is_count(value: ast.expr) -> bool:
    """``len(x)``, ``x.size(0)``, ``x.shape[0]``, ``(a == b).sum()``: of samples, or parts."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.value, ast.Attribute) and value.value.attr == "shape"
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Name):
        return value.func.id == "len"
    if not isinstance(value.func, ast.Attribute):
        return False
    compared = isinstance(value.func.value, ast.Compare) and value.func.attr == "sum"
    return compared or (value.func.attr in ("size", "numel") and len(value.args) <= 1)


def _losses(hook: FunctionDefinition) -> set[str]:
    """The names of what ``training_step`` returns: a mean over the batch, as gradients are."""
    returned = (n.value for n in ast.walk(hook.node) if isinstance(n, ast.Return))
    named = [one for one in returned if isinstance(one, ast.Name)]
    return {one.id for one in named} if hook.name == "training_step" else set()


def _readers(cls: ClassDefinition, field: str) -> list[FunctionDefinition]:
    """The methods that read it, but for those of batches."""
    names = {name for info in cls.mro() for name in info.methods} - {"__init__", *BATCHES}
    methods = (cls.method(name) for name in sorted(names))
    return [m for m in methods if m is not None and any(_reads(s, field) for s in _body(m))]


def _body(method: FunctionDefinition) -> list[ast.stmt]:
    return [] if isinstance(method.node, ast.Lambda) else method.node.body


def _reads(statement: ast.stmt, field: str) -> bool:
    """Whether it does more with a field than to begin anew."""
    return _mentions(statement, field) and not _resets(statement, field)


def _mentions(statement: ast.AST, field: str) -> bool:
    return any(own(node) == field for node in ast.walk(statement))


def _resets(statement: ast.stmt, field: str) -> bool:
    """``self.name = 0``, ``self.name = []``, ``self.name.clear()``."""
    if isinstance(statement, ast.Expr):
        return _of_method(statement.value, "clear") == field
    if not isinstance(statement, ast.Assign) or not _is_begun(statement.value):
        return False
    return field in map(own, statement.targets)


def _is_begun(value: ast.expr) -> bool:
    empty = isinstance(value, ast.List) and not value.elts
    return empty or isinstance(value, ast.Constant)


def _is_reset(cls: ClassDefinition, field: str, reader: FunctionDefinition) -> bool:
    """Whether what the reader has seen is not added to: the next epoch begins anew."""
    if not reader.name.endswith(_END) or reader.node.decorator_list:  # type: ignore[union-attr]
        return False
    before = cls.method(reader.name.removesuffix(_END) + _START)
    return any(
        _resets(statement, field)
        for method in (reader, before)
        if method is not None
        for statement in _body(method)
    )


def _is_of_stage(reader: FunctionDefinition, grown: list[_Growth]) -> bool:
    """Whether hooks of the epoch that ends have added to it."""
    stage = reader.name.removeprefix("on_").removesuffix(_END)
    words = {"train": "train", "validation": "valid", "test": "test"}
    return any(words.get(stage, " ") in one.hook.name for one in grown)


def _is_read_elsewhere(run: Run, cls: ClassDefinition, field: str) -> bool:
    """Whether other code than methods of their own class may read a field of this name."""
    methods = [m for info in cls.mro() for m in info.methods.values()]
    inside = {id(node) for method in methods for node in ast.walk(method.node)}
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == field
        and id(node) not in inside
        and not own(node)
        for module in run.modules.values()
        if not module.ours
        for node in ast.walk(module.tree)
    )
