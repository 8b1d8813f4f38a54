"""Tensors whose entries lie along the first axis in an order that was drawn: they are samples.

What has another meaning, steps of time for one, nobody puts into an order by chance. ::

    x = torch.from_numpy(data[order[i : i + 32]])        # order = np.random.permutation(len(data))
    x = torch.stack([text[i : i + 64] for i in starts])  # starts = torch.randint(high, (32,))
    for x, y in slices(a, b): ...  # a, b = tuple(x[order] for x in arrays)
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ddpify.facts import roles
from ddpify.facts.bindings import (
    argument_of,
    bound_by,
    entry_of,
    gone_over,
    in_turn,
    last_binding,
    nodes_from,
    place_in,
)
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
TUPLES = frozenset({"builtins.tuple", "builtins.list"})
TYPES = KEEPS | frozenset("astype numpy".split())


def is_any_drawn(m: Machine, tree: Tree, split: CutBody, names: Collection[str]) -> bool:
    """Whether one of a batch's tensors is in an order that was drawn, where the model is called."""
    calls: dict[Site, list[Call]] = {}
    for call in roles.calls_of(m):
        calls.setdefault(call.site, []).append(call)
    read = [n for one in split.rest for n in ast.walk(one) if isinstance(n, ast.Name)]
    places = {n.id: n for n in read if n.id in names}
    return any(DrawnOrder(m, calls, tree).is_drawn(node) for node in places.values())


@dataclass(frozen=True)
class DrawnOrder:
    """Where the expressions of a file get their order from, in the functions that make them, too.

    Numbers that are drawn say so only where they ``index``: ``torch.randint(9, (3, 4))``. With a
    ``place``, an entry of a tuple is asked for; a comprehension makes it of that ``entry`` of what
    it goes over. ``entered`` are the calls of the function that is read, of whose arguments the
    ``caller`` knows.
    """

    m: Machine
    calls: Mapping[Site, list[Call]]
    tree: Tree
    depth: int = DEPTH
    index: bool = False
    place: int | None = None
    entry: int | None = None
    entered: tuple[Call, ...] = ()
    caller: DrawnOrder | None = None
    asked: frozenset[object] = frozenset()

    def is_drawn(self, node: ast.AST | None) -> bool:
        """Whether the entries of an expression are in an order that was drawn."""
        if node is None or not self.depth:
            return False
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Call():
                return self._call(node)
            case ast.IfExp(body=one, orelse=other):
                arms = self._run((one, other))
                return bool(arms) and all(map(self.is_drawn, arms))
            case _ if self.place is not None:
                part = entry_of(node, self.place)
                return replace(self, place=None, entry=self.place).is_drawn(part)
            case ast.Subscript(value=ast.Name() as owner, slice=ast.Constant(value=int(number))):
                return replace(self, place=number).is_drawn(owner)  # of a tuple
            case ast.Subscript(value=owner, slice=at):
                first = at.elts[0] if isinstance(at, ast.Tuple) and at.elts else at
                if isinstance(first, ast.Slice):
                    return self.is_drawn(owner)
                return replace(self, depth=self.depth - 1, index=True).is_drawn(first)
            case ast.ListComp(generators=[one]):
                return replace(self, index=True).is_drawn(one.iter)
        return False

    def _call(self, node: ast.Call) -> bool:
        called = self.calls.get(self.tree.site(node), [])
        if len({call.name for call in called}) != 1:
            return False
        name, first = called[0].name, node.args[0] if node.args else None
        library, _, tail = name.rpartition(".")
        if _is_draw(name, node):
            return self.place is None and (self.index or tail in PICK)
        if called[0].target is not None:
            return self._function(called)
        if self.place is not None:
            return name in TUPLES and self.is_drawn(first)
        if library.partition(".")[0] in ("torch", "numpy", "builtins"):
            if tail == "stack" and len(node.args) + len(node.keywords) > 1:
                return False
            collected = tail in COLLECTS and isinstance(first, (ast.ListComp, ast.Name))
            return (tail in CONVERTS or collected) and self.is_drawn(first)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return tail in TYPES and self.is_drawn(owner)

    def _run(self, values: Iterable[ast.expr]) -> list[ast.expr]:
        """Those of some expressions that are not in a branch which no call takes."""
        return [value for value in values if self.tree.site(value) in self.m.values]

    # -- names

    def _name(self, node: ast.Name) -> bool:
        """Whether a name is bound to nothing else, or is shuffled in place."""
        tree, over = self.tree, gone_over(self.tree, node)
        if over is not None:
            alone = self.place is None and self.entry is not None and in_turn(over, node.id)
            return alone and replace(self, place=self.entry).is_drawn(over.generators[0].iter)
        scope = tree.function(node)
        while node.id not in tree.bound(scope) and not isinstance(scope, ast.Module):
            scope = tree.function(scope)
        last = last_binding(tree, scope, node)
        ways = tuple(call.way for call in self.entered)
        key = (ways, last or scope, node.id, self.place, self.index)
        if key in self.asked:
            return True  # made of itself: `x = x.cuda()`
        bound = list(replace(self, asked=self.asked | {key})._bound(scope, node.id, last))
        drawn = True in bound and False not in bound
        shuffled = self.place is None and self._is_shuffled(scope, node.id, last)
        return drawn or (bool(bound) and shuffled)

    def _bound(self, scope: ast.AST, name: str, last: ast.stmt | None) -> Iterator[bool | None]:
        """For each statement that binds a name, from the ``last`` on that surely did, whether that
        is drawn; None: as it was before."""
        for each in nodes_from(self.tree, scope, last):
            match each:
                case ast.Assign(targets=[target], value=value) if name in stored([target]):
                    if not self._run((value,)):
                        continue
                    drawn = self._taken(target, value, name)
                    again = each is not last and name in loaded(value)
                    as_before = again if drawn else self.index and _numbers(value)
                    yield None if as_before else drawn
                case ast.For(target=target, iter=value) if name in stored([target]):
                    yield self._yielded(target, value, name)
                case ast.arg(arg=argument) if argument == name:
                    yield self._given(scope, name)
                case _ if name in stored(bound_by(each)):
                    yield False

    def _taken(self, target: ast.expr, value: ast.expr, name: str) -> bool:
        """``x = …``, ``x, y = …, …``, ``x, y = get_batch()``."""
        at = self._unpacked(target, name)
        return at is not None and at.is_drawn(value)

    def _unpacked(self, target: ast.expr, name: str) -> DrawnOrder | None:
        """Who asks for what a name takes of what this target is bound to."""
        if isinstance(target, ast.Name):
            return self
        place = place_in(target, name)
        return replace(self, place=place) if place is not None and self.place is None else None

    def _yielded(self, target: ast.expr, value: ast.expr, name: str) -> bool:
        """``for x, y in batches(data)``, with ``enumerate`` around it."""
        call = value if isinstance(value, ast.Call) else None
        if call is not None and ast.unparse(call.func) == "enumerate" and call.args:
            pair = target.elts if isinstance(target, ast.Tuple) else []
            within = len(pair) == 2 and name not in stored(pair[:1])
            return within and self._yielded(pair[1], call.args[0], name)
        if isinstance(value, ast.Name):
            scope = self.tree.function(value)
            made = [n for n in self.tree.nodes(scope) if value.id in stored(bound_by(n))]
            one = made[0] if len(made) == 1 else None
            value = one.value if isinstance(one, ast.Assign) else value
        at = self._unpacked(target, name)
        called = self.calls.get(self.tree.site(value), [])
        return at is not None and at._function(called, ast.Yield)

    def _given(self, scope: ast.AST, name: str) -> bool:
        """Whether all calls of the function give such to a parameter."""
        caller, found = self.caller, [argument_of(c, scope, name, self.place) for c in self.entered]
        if caller is None or not found:
            return False
        for site, place in found:
            if site is None:
                return False
            tree, depth = self.m.tree(site.path), self.depth - 1
            asks = replace(caller, tree=tree, depth=depth, index=self.index, place=place)
            if not replace(asks, asked=self.asked).is_drawn(tree.expression(site)):
                return False
        return True

    def _is_shuffled(self, scope: ast.AST, name: str, last: ast.stmt | None) -> bool:
        """``random.shuffle(order)``, ``np.random.shuffle(order)``."""
        for node in nodes_from(self.tree, scope, last):
            if isinstance(node, ast.Call) and [ast.unparse(a) for a in node.args] == [name]:
                names = {call.name for call in self.calls.get(self.tree.site(node), [])}
                if names and all(one.endswith(".shuffle") and _of_chance(one) for one in names):
                    return True
        return False

    # -- functions

    def _function(
        self, called: list[Call], kind: type[ast.Return] | type[ast.Yield] = ast.Return
    ) -> bool:
        """Whether all that a function returns, or yields, is drawn (at this place of it)."""
        targets = {call.target for call in called}
        return bool(targets) and all(
            info is not None and self._gives(info, called, kind) for info in targets
        )

    def _gives(
        self, info: FunctionInfo, called: list[Call], kind: type[ast.Return] | type[ast.Yield]
    ) -> bool:
        tree = self.m.tree(info.module.source.path)
        nodes = tree.nodes(info.node)
        given = [n.value for n in nodes if isinstance(n, kind)]
        open_ended = None in given or any(isinstance(n, ast.YieldFrom) for n in nodes)
        entered = tuple(call for call in called if call.target is info)
        inside = replace(self, tree=tree, depth=self.depth - 1, index=False, entry=None)
        inside = replace(inside, entered=entered, caller=self)
        values = inside._run(value for value in given if value is not None)
        return bool(values) and not open_ended and all(map(inside.is_drawn, values))


def _numbers(value: ast.expr) -> bool:
    """``np.arange(n)``, ``torch.LongTensor(range(n))``: the order where none is drawn."""
    while isinstance(value, ast.Call):
        tail = ast.unparse(value.func).rpartition(".")[2]
        if tail in ("range", "arange") or tail not in CONVERTS or not value.args:
            return tail in ("range", "arange")
        value = value.args[0]
    return False


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
