"""Tensors whose entries lie along the first axis in an order that was drawn: they are samples.

What has another meaning, steps of time for one, nobody puts into an order by chance. ::

    x = torch.from_numpy(data[order[i : i + 32]])        # order = np.random.permutation(len(data))
    x = torch.stack([text[i : i + 64] for i in starts])  # starts = torch.randint(high, (32,))
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ddpify.facts import roles
from ddpify.facts.bodies import CutBody, loaded, stored
from ddpify.facts.events import Call
from ddpify.facts.places import KEEPS
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import FROM_LISTS
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.python import words
from ddpify.source import Site

DEPTH = 6
# They draw one number for each entry of what they give: the place of the argument that says so.
MANY = {"randperm": 0, "permutation": 0, "sample": 1, "choice": 1, "choices": 1, "randint": 2}
SIZES = frozenset("size k".split())
PICK = frozenset("permutation sample choices".split())  # entries of what they are given
# The first argument in another type, with its axes where they were.
CONVERTS = FROM_LISTS | frozenset("from_numpy Variable list asarray".split())
COLLECTS = FROM_LISTS | frozenset("stack array vstack list".split())
TYPES = KEEPS | frozenset("astype numpy".split())


def is_any_drawn(m: Machine, tree: Tree, split: CutBody, names: Collection[str]) -> bool:
    """Whether one of a batch's tensors is in an order that was drawn, where the model is called."""
    calls: dict[Site, list[Call]] = {}
    for call in roles.calls_of(m):
        calls.setdefault(call.site, []).append(call)
    read = [n for one in split.rest for n in ast.walk(one) if isinstance(n, ast.Name)]
    places = {n.id: n for n in read if n.id in names}
    return any(DrawnOrder(m, calls).is_drawn(tree, node) for node in places.values())


@dataclass
class DrawnOrder:
    """Where expressions get their order from, in the functions that make them, too."""

    m: Machine
    calls: dict[Site, list[Call]]
    asked: set[tuple[ast.AST, str]] = field(default_factory=set)

    def is_drawn(
        self, tree: Tree, node: ast.AST | None, depth: int = DEPTH, index: bool = False
    ) -> bool:
        """Whether the entries of an expression are in an order that was drawn.

        Numbers that are drawn are so only where they ``index``: ``torch.randint(9, (3, 4))``.
        """
        if node is None or not depth:
            return False
        match node:
            case ast.Name():
                return self._name(tree, node, depth, index)
            case ast.Subscript(value=owner, slice=place):
                first = place.elts[0] if isinstance(place, ast.Tuple) and place.elts else place
                if isinstance(first, ast.Slice):
                    return self.is_drawn(tree, owner, depth, index)
                return self.is_drawn(tree, first, depth - 1, True)
            case ast.ListComp(generators=[one]):
                return self.is_drawn(tree, one.iter, depth, True)
            case ast.Call():
                return self._call(tree, node, depth, index)
        return False

    def _call(self, tree: Tree, node: ast.Call, depth: int, index: bool) -> bool:
        called = self.calls.get(tree.site(node), [])
        if len({call.name for call in called}) != 1:
            return False
        name, first = called[0].name, node.args[0] if node.args else None
        library, _, tail = name.rpartition(".")
        if _is_draw(name, node):
            return index or tail in PICK
        if called[0].target is not None:
            return self._function(called, None, depth)
        if library.partition(".")[0] in ("torch", "numpy", "builtins"):
            if tail == "stack" and len(node.args) + len(node.keywords) > 1:
                return False
            collected = tail in COLLECTS and isinstance(first, (ast.ListComp, ast.Name))
            return (tail in CONVERTS or collected) and self.is_drawn(tree, first, depth, index)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return tail in TYPES and self.is_drawn(tree, owner, depth, index)

    # -- names

    def _name(self, tree: Tree, node: ast.Name, depth: int, index: bool) -> bool:
        """Whether a name is bound to nothing else, or is shuffled in place."""
        scope = tree.function(node)
        while node.id not in tree.bound(scope) and not isinstance(scope, ast.Module):
            scope = tree.function(scope)
        if (scope, node.id) in self.asked:
            return True  # made of itself: `x = x.cuda()`
        self.asked.add((scope, node.id))
        bound = list(self._bound(tree, scope, node.id, depth, index))
        self.asked.discard((scope, node.id))
        drawn = True in bound and False not in bound
        return drawn or (bool(bound) and self._is_shuffled(tree, scope, node.id))

    def _bound(
        self, tree: Tree, scope: ast.AST, name: str, depth: int, index: bool
    ) -> Iterator[bool | None]:
        """For each statement that binds a name, whether that is drawn; None: as it was before."""
        for each in (n for n in tree.nodes(scope) if tree.function(n) is scope):
            match each:
                case ast.Assign(targets=[target], value=value) if name in stored([target]):
                    drawn = self._taken(tree, target, value, name, depth, index)
                    as_before = name in loaded(value) if drawn else index and _numbers(value)
                    yield None if as_before else drawn
                case ast.For(target=target, iter=value) if name in stored([target]):
                    yield self._yielded(tree, target, value, name, depth)
                case ast.arg(arg=argument) if argument == name:
                    yield False
                case _ if name in stored(_own(each)):
                    yield False

    def _taken(
        self, tree: Tree, target: ast.expr, value: ast.expr, name: str, depth: int, index: bool
    ) -> bool:
        """``x = …``, ``x, y = …, …``, ``x, y = get_batch()``."""
        if isinstance(target, ast.Name):
            return self.is_drawn(tree, value, depth, index)
        place = _place(target, name)
        if place is None:
            return False
        if isinstance(value, ast.Tuple):
            return self.is_drawn(tree, value.elts[place], depth, index)
        called = self.calls.get(tree.site(value), [])
        return self._function(called, place, depth)

    def _yielded(
        self, tree: Tree, target: ast.expr, value: ast.expr, name: str, depth: int
    ) -> bool:
        """``for x, y in batches(data)``, with ``enumerate`` around it."""
        call = value if isinstance(value, ast.Call) else None
        if call is not None and ast.unparse(call.func) == "enumerate" and call.args:
            pair = target.elts if isinstance(target, ast.Tuple) else []
            return len(pair) == 2 and self._yielded(tree, pair[1], call.args[0], name, depth)
        if isinstance(value, ast.Name):
            scope = tree.function(value)
            made = [n for n in tree.nodes(scope) if value.id in stored(_own(n))]
            one = made[0] if len(made) == 1 else None
            value = one.value if isinstance(one, ast.Assign) else value
        place = None if isinstance(target, ast.Name) else _place(target, name)
        if place is None and not isinstance(target, ast.Name):
            return False
        return self._function(self.calls.get(tree.site(value), []), place, depth, ast.Yield)

    def _is_shuffled(self, tree: Tree, scope: ast.AST, name: str) -> bool:
        """``random.shuffle(order)``, ``np.random.shuffle(order)``."""
        for node in tree.nodes(scope):
            if (
                isinstance(node, ast.Call)
                and tree.function(node) is scope
                and [ast.unparse(a) for a in node.args] == [name]
            ):
                names = {call.name for call in self.calls.get(tree.site(node), [])}
                if names and all(one.endswith(".shuffle") and _of_chance(one) for one in names):
                    return True
        return False

    # -- functions

    def _function(
        self,
        called: list[Call],
        place: int | None,
        depth: int,
        kind: type[ast.Return] | type[ast.Yield] = ast.Return,
    ) -> bool:
        """Whether all that a function returns, or yields, is drawn (at this place of it)."""
        targets = {id(call.target): call.target for call in called}
        return bool(targets) and all(
            info is not None and self._gives(info, place, depth - 1, kind)
            for info in targets.values()
        )

    def _gives(
        self,
        info: FunctionInfo,
        place: int | None,
        depth: int,
        kind: type[ast.Return] | type[ast.Yield],
    ) -> bool:
        tree = self.m.tree(info.module.source.path)
        own = [n for n in tree.nodes(info.node) if isinstance(n, (ast.Return, ast.Yield))]
        given = [n.value for n in own if isinstance(n, kind)]
        parts = [_part(value, place) for value in given]
        return bool(parts) and all(self.is_drawn(tree, part, depth) for part in parts)


def _numbers(value: ast.expr) -> bool:
    """``np.arange(n)``, ``torch.LongTensor(range(n))``: the order where none is drawn."""
    while isinstance(value, ast.Call):
        tail = ast.unparse(value.func).rpartition(".")[2]
        if tail in ("range", "arange") or tail not in CONVERTS or not value.args:
            return tail in ("range", "arange")
        value = value.args[0]
    return False


def _part(value: ast.expr | None, place: int | None) -> ast.expr | None:
    if place is None:
        return value
    return value.elts[place] if isinstance(value, ast.Tuple) and len(value.elts) > place else None


def _place(target: ast.expr, name: str) -> int | None:
    """Where in a tuple a name is bound."""
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    named = [i for i, one in enumerate(parts) if isinstance(one, ast.Name) and one.id == name]
    starred = any(isinstance(one, ast.Starred) for one in parts)
    return named[0] if len(named) == 1 and not starred else None


def _own(node: ast.AST) -> list[ast.AST]:
    """What a statement binds by itself, not in its blocks."""
    match node:
        case ast.For(target=target) | ast.NamedExpr(target=target):
            return [target]
        case ast.withitem(optional_vars=target):
            return [target] if target is not None else []
        case ast.AugAssign() | ast.AnnAssign() | ast.Delete() | ast.Assign():
            return [node]
    return []


def _of_chance(name: str) -> bool:
    return any(name.startswith(start) for start, _ in words.DRAWS)


def _is_draw(name: str, node: ast.Call) -> bool:
    """Whether a call draws one number, or picks one entry, for each of several entries."""
    tail = name.rpartition(".")[2]
    if not _of_chance(name) or tail not in MANY or name == "random.randint":
        return False
    given = node.args[MANY[tail] :] + [each.value for each in node.keywords if each.arg in SIZES]
    last = node.args[-1:] if name == "torch.randint" else []  # `torch.randint(high, (32,))`
    sizes = given or [each for each in last if isinstance(each, ast.Tuple)]
    return bool(sizes) and not any(isinstance(e, ast.Tuple) and e.elts[1:] for e in sizes)
