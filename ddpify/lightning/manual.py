"""Steps made by hand (``automatic_optimization = False``): which are the same on several devices.

``self.manual_backward`` averages the gradients over the processes each time it is called: one
optimizer or several, toggled or not, accumulation by hand, clipping, closures and schedulers then
do what they did (measured: 1e-15). What goes past it, or is decided by a process for itself, does
not.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree, last_name

_SETTING: Final = "automatic_optimization"
_DIRECT: Final = (
    "`.backward()` does not average these gradients over the processes (measured: they train apart"
    " from the first step): call self.manual_backward(loss)"
)
_PUT: Final = "gradients that are put in place by hand are not averaged over the processes"
_APART: Final = (
    "whether this step is made is decided by what one process has: the others wait, or train apart"
)
_NUMBER: Final = (
    "a schedule that goes by a process's own number has another rate in each: give it one of"
    " self.trainer.callback_metrics that is logged with sync_dist=True"
)
_STEPS: Final = ("manual_backward", "step", "toggle_optimizer")
_KNOWN: Final = ("lr_schedulers", "optimizers")
_SHARED: Final = ("hparams", "trainer", "current_epoch", "global_step")
_READ: Final = ("callback_metrics", "current_epoch", "global_step")
_BEFORE: Final = ("__init__", "setup", "configure_optimizers")


def faults(facts: Facts) -> Iterator[tuple[Tree, ast.AST, str]]:
    """What in classes that step by hand is not the same on several devices, and why."""
    for tree, cls in by_hand(facts):
        for method in _methods(cls):
            if method.name == "backward":  # Lightning calls it inside of its own
                continue
            reading = _HandMade(tree, cls, method)
            for node in tree.nodes(method):
                why = reading.fault(node)
                if why:
                    yield tree, node, why


def several_optimizers(facts: Facts) -> bool:
    """Whether such a class has more than one: a backward for one leaves the others' weights out."""
    for tree, cls in by_hand(facts):
        for node in tree.nodes(cls):
            if isinstance(node, ast.Call) and last_name(node.func) == "toggle_optimizer":
                return True
            if isinstance(node, ast.Call) and last_name(node.func) == "optimizers":
                above = tree.parent(node)
                unpacked = isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple)
                if unpacked or isinstance(above, (ast.Subscript, ast.For)):
                    return True
    return False


def by_hand(facts: Facts) -> list[tuple[Tree, ast.ClassDef]]:
    """The classes that step by hand, with those they inherit from and that inherit from them."""
    classes = [
        (tree, node)
        for tree in facts.trees.values()
        for node in tree.nodes()
        if isinstance(node, ast.ClassDef)
    ]
    ours = {cls.name for _, cls in classes}
    names = {cls.name for tree, cls in classes if any(map(_switches_off, tree.nodes(cls)))}
    for _ in classes if names else ():
        for _, cls in classes:
            family = {cls.name, *map(last_name, cls.bases)} & ours
            names |= family if names & family else set()
    return [(tree, cls) for tree, cls in classes if cls.name in names]


def _switches_off(node: ast.AST) -> bool:
    """``self.automatic_optimization = False``, as a field, or as a property."""
    if isinstance(node, ast.FunctionDef):
        return node.name == _SETTING
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    value = getattr(node, "value", None)
    off = isinstance(value, ast.Constant) and value.value is False
    return off and _SETTING in map(last_name, targets)


class _HandMade:
    """A method of such a class, and what all processes know alike in it."""

    def __init__(self, tree: Tree, cls: ast.ClassDef, method: ast.FunctionDef) -> None:
        self._tree, self._cls, self._method = tree, cls, method
        given = method.args.args[2:] if method.name == "training_step" else ()
        self._own = {one.arg for one in given} | {"self", "batch_idx"}
        self._stepping = _stepping(cls)

    def fault(self, node: ast.AST) -> str:
        if isinstance(node, ast.Assign):
            put = any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in node.targets)
            return _PUT * (put and ast.unparse(node.value) != "None")
        name = last_name(node.func) if isinstance(node, ast.Call) else ""
        if name == "backward":
            return _DIRECT
        if not isinstance(node, ast.Call) or name not in {*_STEPS, *self._stepping}:
            return ""
        if not all(map(self._is_alike, self._conditions(node))) or self._may_be_left(node):
            return _APART
        return _NUMBER * (name == "step" and any(map(self._is_number, node.args)))

    def _conditions(self, node: ast.AST) -> Iterator[ast.expr]:
        """What decides whether, or how often, a call is made."""
        below = node
        for above in self._around(node):
            if isinstance(above, (ast.If, ast.While, ast.IfExp)) and below is not above.test:
                yield above.test
            elif isinstance(above, ast.For) and below is not above.iter:
                yield above.iter
            below = above

    def _may_be_left(self, node: ast.AST) -> bool:
        """Whether the method may end, or a round of a loop, or a `try`, before a call is made."""
        if any(isinstance(above, ast.Try) for above in self._around(node)):
            return True
        return any(
            isinstance(one, (ast.Return, ast.Raise, ast.Continue, ast.Break))
            and one.lineno < node.lineno  # type: ignore[attr-defined]
            and not all(map(self._is_alike, self._conditions(one)))
            for one in self._tree.nodes(self._method)
        )

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        for above in self._tree.ancestors(node):
            if above is self._method:
                return
            yield above

    def _is_alike(self, test: ast.expr, depth: int = 8) -> bool:
        """Whether an expression has the same value in all processes."""
        if not depth:
            return False
        for node in ast.walk(test):
            if isinstance(node, ast.Call):
                alike = last_name(node.func) in _KNOWN or hasattr(builtins, ast.unparse(node.func))
            elif isinstance(node, ast.Attribute):
                alike = self._is_setting(node)
            else:
                alike = not isinstance(node, ast.Name) or self._is_known(node.id, depth)
            if not alike:
                return False
        return True

    def _is_known(self, name: str, depth: int) -> bool:
        """Whether a name is a number of the loop, or bound to nothing but what is alike."""
        if name in self._own or hasattr(builtins, name):
            return True
        bound = self._tree.bound(self._method)
        if name not in bound:
            return True  # of the file
        values = list(self._values(name))
        return bool(values) and all(self._is_alike(value, depth - 1) for value in values)

    def _values(self, name: str) -> Iterator[ast.expr]:
        for node in self._tree.nodes(self._method):
            if isinstance(node, ast.Assign) and any(_binds(t, name) for t in node.targets):
                yield node.value
            elif isinstance(node, ast.For) and _binds(node.target, name):
                yield node.iter

    def _is_setting(self, node: ast.Attribute) -> bool:
        """``self.x`` that no step changes but by counting; ``x`` of anything that is alike."""
        if not isinstance(node.value, ast.Name):
            return self._is_configured(node)
        if node.value.id != "self":
            return True
        return node.attr in _SHARED or not any(
            _changes(one, node.attr)
            for method in _methods(self._cls)
            if method.name not in _BEFORE
            for one in self._tree.nodes(method)
        )

    def _is_configured(self, node: ast.Attribute) -> bool:
        """``self.hparams.every``, ``self.config.every``: of what the constructor was given."""
        kept: ast.expr = node
        while isinstance(kept, ast.Attribute) and isinstance(kept.value, (ast.Attribute, ast.Name)):
            if isinstance(kept.value, ast.Name):
                break
            kept = kept.value
        if not isinstance(kept, ast.Attribute):
            return False
        if getattr(kept.value, "id", "") != "self" or kept.attr in _SHARED:
            return True
        made = next((m for m in _methods(self._cls) if m.name == "__init__"), None)
        given = {one.arg for one in made.args.args} if made is not None else set()
        return any(
            isinstance(one, ast.Assign)
            and kept.attr in map(last_name, one.targets)
            and isinstance(one.value, ast.Name)
            and one.value.id in given
            for one in (ast.walk(made) if made is not None else ())
        )

    def _is_number(self, argument: ast.expr) -> bool:
        """Whether what a ``step`` is given is a number that each process has for itself."""
        closures = {n.name for n in ast.walk(self._method) if isinstance(n, ast.FunctionDef)}
        if isinstance(argument, (ast.Lambda, ast.Constant)):
            return False
        named = isinstance(argument, ast.Name) and argument.id in closures
        return not named and not any(one in ast.unparse(argument) for one in _READ)


def _stepping(cls: ast.ClassDef) -> set[str]:
    """The methods of a class that step, or call one that does."""
    found: set[str] = set()
    methods = {method.name: method for method in _methods(cls)}
    for _ in methods:
        for name, method in methods.items():
            calls = {last_name(n.func) for n in ast.walk(method) if isinstance(n, ast.Call)}
            found |= {name} if calls & {*_STEPS, *found} else set()
    return found


def _changes(node: ast.AST, name: str) -> bool:
    """Whether a statement gives ``self.name`` what is not a constant."""
    if isinstance(node, ast.Assign):
        return name in map(last_name, node.targets) and not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.AugAssign):
        return last_name(node.target) == name and not isinstance(node.value, ast.Constant)
    return False


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(target))


def _methods(cls: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    return (node for node in cls.body if isinstance(node, ast.FunctionDef))
