"""The outputs of a model, as the `return` statements of its `forward` are written."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.fresh import method_of
from ddpify.facts.returns import reached
from ddpify.facts.scopes import Guard
from ddpify.facts.values import Kind, Thing, Value

Names = tuple[str, ...]
Displays = tuple[type[ast.expr], ...]
OUTPUTS = "outputs"  # a list of what a model returns


def separate(
    model: Thing, whole: Value, call: Thing, guards: Iterable[Guard], trains: bool
) -> Value:
    """What a call of a model gives: each output where it returns so many there, else ``whole``.

    A list of them, perhaps where it ``trains`` only, has as many on each rank.
    """
    names = names_of(model, guards)
    if not names and _lists(model, trains, whole.rows):
        return whole.but(
            things=(Thing(Kind.ITERATOR, call.born, OUTPUTS, inner=whole),), rows=False
        )
    if not names:
        return whole
    made = Thing(Kind.TUPLE, call.born, items=(whole,) * len(names))
    made.attrs.update({name: whole for name in names if name})
    return whole.but(things=(made,), rows=False, blocks=0)


def _lists(model: Thing, trains: bool, alone: bool) -> bool:
    """Whether each `return` of a ``forward`` gives a list, or each one `if self.training`.

    A tuple is one, too, where the input is ``alone``: beside targets it may hold a loss.
    """
    info = method_of(model, "forward")
    if info is None:
        return False
    lists = info.module.source.once(_Lists, info.node)
    displays = (ast.List, ast.Tuple) if alone else (ast.List,)
    return any(
        bool(chosen) and all(lists.fixed(n.value, displays) for n in chosen)
        for chosen in ([lists.every, lists.training] if trains else [lists.every])
    )


class _Lists:
    """The lists of a ``forward``, and whether the samples say how long they are."""

    def __init__(self, node: ast.AST) -> None:
        nodes = list(ast.walk(node))
        self.every = [n for n in nodes if isinstance(n, ast.Return)]
        tests = [n for n in nodes if isinstance(n, ast.If)]
        branches = [n.body for n in tests if ast.unparse(n.test) == "self.training"]
        branches += [n.orelse for n in tests if ast.unparse(n.test) == "not self.training"]
        self.training = [n for n in self.every if any(n in branch for branch in branches)]
        self.bound: dict[str, list[ast.expr]] = {}
        self.grown: set[str] = set()  # perhaps in some calls only, or as often as samples say
        for each in nodes:
            if isinstance(each, ast.Assign):
                for target in each.targets:
                    if isinstance(target, ast.Name):
                        self.bound.setdefault(target.id, []).append(each.value)
            elif isinstance(each, (ast.If, ast.For, ast.While, ast.Try)) and not _of_self(each):
                self.grown |= {n.id for n in ast.walk(each) if isinstance(n, ast.Name)}

    def fixed(self, value: ast.expr | None, displays: Displays, depth: int = 4) -> bool:
        """Whether an expression is a list that is as long in each call."""
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and depth:
            return all(self.fixed(n, displays, depth - 1) for n in (value.left, value.right))
        if isinstance(value, ast.Name) and depth:
            made = self.bound.get(value.id, [])
            same = bool(made) and all(self.fixed(one, displays, depth - 1) for one in made)
            return same and value.id not in self.grown
        if isinstance(value, ast.ListComp):
            parts = value.generators
            return all(not part.ifs and _of_self(part) for part in parts)
        return isinstance(value, displays) and not _starred(getattr(value, "elts", []))


def _of_self(node: ast.AST) -> bool:
    """Whether what the model is made of decides, and not what it is given."""
    asked = node.iter if isinstance(node, ast.For | ast.comprehension) else None
    asked = node.test if isinstance(node, ast.If | ast.While) else asked
    names = {n.id for n in ast.walk(asked) if isinstance(n, ast.Name)} if asked else set()
    return "self" in names and names <= {"self", "range", "len", "enumerate", "zip"}


def names_of(model: Thing, guards: Iterable[Guard]) -> Names:
    """A name, or none (""), for each output of a model; () where it may return one tensor."""
    info = method_of(model, "forward")
    if info is None:
        return ()
    bound = info.module.source.once(_assigned, info.node)
    returned = reached(model, info, guards)
    named = {_names(_bound(value, bound), bound) for value in returned}
    return named.pop() if len(named) == 1 else ()


def _assigned(function: ast.AST) -> dict[str, list[ast.expr]]:
    """What each name is bound to, of one among several what all are."""
    bound: dict[str, list[ast.expr]] = {}
    for each in ast.walk(function):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                for name in (n for n in ast.walk(target) if isinstance(n, ast.Name)):
                    whole = target is name
                    bound.setdefault(name.id, []).append(each.value if whole else target)
    return bound


def _bound(value: ast.expr | None, bound: dict[str, list[ast.expr]]) -> ast.expr | None:
    """The expression that a name stands for, where it is bound once."""
    if not isinstance(value, ast.Name):
        return value
    found = bound.get(value.id, [])
    return found[0] if len(found) == 1 else None


def _names(value: ast.expr | None, bound: dict[str, list[ast.expr]]) -> Names:
    """Of a tuple that is written out, or of a named tuple whose fields are."""
    if isinstance(value, ast.Tuple) and isinstance(value.ctx, ast.Load):
        return ("",) * len(value.elts) if not _starred(value.elts) else ()
    made = _bound(value.func, bound) if isinstance(value, ast.Call) else None
    if not isinstance(value, ast.Call) or not isinstance(made, ast.Call) or len(made.args) != 2:
        return ()
    fields = made.args[1]
    if not ast.unparse(made.func).endswith("namedtuple") or not isinstance(fields, ast.List):
        return ()
    names = tuple(str(e.value) for e in fields.elts if isinstance(e, ast.Constant))
    whole = len(names) == len(value.args) and not value.keywords and not _starred(value.args)
    return names if whole and not made.keywords else ()


def _starred(parts: list[ast.expr]) -> bool:
    return any(isinstance(part, ast.Starred) for part in parts)
