"""What a class keeps of the batches that its hooks are given, until a hook at the end reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.ranks.hooks import BATCHES, EVALUATION
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.frameworks.steps import summed_steps
from ddpify.rules.shared.fields import called, dotted, kept, own

_END: Final = "_epoch_end"
_START: Final = "_epoch_start"
_SAME: Final = frozenset("item detach cpu clone float double int".split())
# Calls that see to the other processes' numbers themselves.
_AGREES: Final = frozenset(
    "all_gather all_reduce gather_samples reduce_sum reduce_mean all_gather_object".split()
)
_CHANGES: Final = ("append", "extend", "insert", "add", "update", "setdefault", "appendleft")
_HOLDERS: Final = ("list", "dict", "set", "defaultdict", "deque", "Counter", "OrderedDict")


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
    """One place where a hook adds to a field; ``form`` is "add", "append", or "" for others."""

    hook: FunctionDefinition
    node: ast.stmt
    value: ast.expr
    form: str


def kept_fields(run: Run, cls: ClassDefinition) -> Iterator[KeptField]:
    """The fields of a class that differ between processes when they are read."""
    growths: dict[str, list[_Growth]] = {}
    for name in BATCHES:
        for field, one in _grown(cls, cls.method(name)):
            growths.setdefault(field, []).append(one)
    for field, grown in growths.items():
        hows = {_how(run, cls, field, one) for one in grown}
        plain = len(hows) == 1 and not _is_read_elsewhere(run, cls, field)
        for reader in _readers(cls, field) if hows != {"same"} else ():
            if _agrees(reader):
                continue
            known = plain and _is_reset(cls, field, reader) and _is_of_stage(reader, grown)
            known &= not _is_reduced_by_hand(reader)
            yield KeptField(
                field,
                next(iter(hows)) if known else "",
                grown[0].hook.name,
                reader,
                next(one for one in _body(reader) if _mentions(one, field)),
            )


def _agrees(method: FunctionDefinition) -> bool:
    """Whether a method has processes agree, by a collective or its Trainer's strategy."""
    calls = (node for node in ast.walk(method.node) if isinstance(node, ast.Call))
    by_strategy = any(".strategy." in f".{ast.unparse(call.func)}" for call in calls)
    return by_strategy or bool(called(method) & _AGREES)


def _is_reduced_by_hand(method: FunctionDefinition) -> bool:
    """``self.log(…, reduce_fx="sum", sync_dist=True)``: what is summed twice is too much."""
    calls = (node for node in ast.walk(method.node) if isinstance(node, ast.Call))
    return any({"reduce_fx", "sync_dist"} <= {one.arg for one in call.keywords} for call in calls)


def _grown(cls: ClassDefinition, hook: FunctionDefinition | None) -> Iterator[tuple[str, _Growth]]:
    """The statements of a hook that add to ``self.name``, or change what it holds."""
    for node in ast.walk(hook.node) if hook is not None else ():
        if not isinstance(node, (ast.AugAssign, ast.Assign, ast.Expr)):
            continue
        assert hook is not None
        for name, value, form in _added(node):
            if name and (form != "" or _is_holder(cls, name)):
                yield name, _Growth(hook, node, value, form)


def _added(node: ast.AugAssign | ast.Assign | ast.Expr) -> Iterator[tuple[str, ast.expr, str]]:
    """The fields that a statement changes, by what, and how."""
    if isinstance(node, ast.AugAssign):
        plain = isinstance(node.op, ast.Add) and bool(own(node.target))
        yield _field(node.target), node.value, "add" if plain else ""
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            name, value = own(target), node.value
            adds = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
            if adds and name and own(value.left) == name:  # type: ignore[attr-defined]
                yield name, value.right, "add"  # type: ignore[attr-defined]
            elif isinstance(target, ast.Subscript):
                yield _field(target), value, ""
    elif isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        func, args = node.value.func, node.value.args
        plain = func.attr == "append" and bool(own(func.value)) and bool(args)
        if func.attr in _CHANGES:
            yield _field(func.value), args[0] if args else func, "append" if plain else ""


def _field(node: ast.expr) -> str:
    """``name`` of ``self.name`` and of ``self.name[…]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return own(node)


def _is_holder(cls: ClassDefinition, name: str) -> bool:
    """Whether a field is a list, a dict and so on, or an object of the project's own."""
    for module, value in kept(cls, name):
        if isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)):
            return True
        made = dotted(value.func) if isinstance(value, ast.Call) else ""
        if made.rpartition(".")[2] in _HOLDERS or made in module.classes:
            return True
    return False


def _of_method(node: ast.AST, method: str) -> str:
    """``name`` of ``self.name.method(…)``."""
    of_object = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if not of_object or node.func.attr != method:  # type: ignore[attr-defined]
        return ""
    return own(node.func.value)  # type: ignore[attr-defined]


def _how(run: Run, cls: ClassDefinition, field: str, one: _Growth) -> str:
    """What makes all processes' numbers one: "same" if each has what one process has."""
    listed = any(isinstance(value, ast.List) for _, value in kept(cls, field))
    if one.form == "" or (one.form == "add" and listed):  # `+=` of a list: an entry per sample
        return ""
    if one.hook.name in EVALUATION:  # each batch is one process's, whole
        return "list" if one.form == "append" else "sum"
    if one.node not in _body(one.hook):  # a process may come there, and another not
        return ""
    if isinstance(one.value, ast.Constant):  # steps are counted
        return "same"
    value = _bare(one.value)
    if _is_count(value, _of_batch(one.hook)):
        return "sum"
    if not isinstance(value, ast.Name) or value.id not in _losses(one.hook):
        return ""
    return "sum" if one.hook in (step for step, _ in summed_steps(run)) else "mean"


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


def _of_batch(hook: FunctionDefinition) -> set[str]:
    """The names of a hook's batch, and of what is made of it."""
    given = [name for name in hook.parameters if name not in ("self", "trainer", "pl_module")]
    names = {*given} - {"batch_idx", "dataloader_idx"}
    bound = [node for node in ast.walk(hook.node) if isinstance(node, ast.Assign)]
    for _ in bound:
        for node in bound:
            used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            if used & names:
                parts = (n for target in node.targets for n in ast.walk(target))
                names |= {n.id for n in parts if isinstance(n, ast.Name)} - {"self"}
    return names


def _is_count(value: ast.expr, names: set[str]) -> bool:
    """``len(x)``, ``x.size(0)``, ``x.shape[0]``, ``(a == b).sum()``: of samples of the batch."""
    if isinstance(value, ast.Subscript):
        counted = value.value.value if isinstance(value.value, ast.Attribute) else None
        plain = isinstance(value.value, ast.Attribute) and value.value.attr == "shape"
        return plain and _is_first(value.slice) and _root(counted) in names
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Name):
        return value.func.id == "len" and len(value.args) == 1 and _root(value.args[0]) in names
    if not isinstance(value.func, ast.Attribute):
        return False
    if isinstance(value.func.value, ast.Compare):
        return value.func.attr == "sum" and not value.args
    sized = value.func.attr == "size" and len(value.args) == 1 and _is_first(value.args[0])
    return sized and _root(value.func.value) in names


def _is_first(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _root(node: ast.AST | None) -> str:
    """``x`` of ``x[0]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _losses(hook: FunctionDefinition) -> set[str]:
    """The names of what ``training_step`` returns: as gradients are, a mean or a sum."""
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
        for node in module.nodes
    )
