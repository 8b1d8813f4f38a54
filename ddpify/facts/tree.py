"""A module's syntax with parents: which statement, block or function a site belongs to."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise, takewhile

from ddpify.source import Site, Source, Span

BLOCKS = ("body", "orelse", "finalbody")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Tree:
    """Look-ups from spans to nodes and from nodes to what surrounds them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.module = source.parse()
        self._inside: dict[ast.AST, tuple[ast.AST, ...]] = {}

    @cached_property
    def _parent(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.nodes() for child in ast.iter_child_nodes(node)}

    @cached_property
    def _at(self) -> dict[Span, list[ast.AST]]:
        found: dict[Span, list[ast.AST]] = {}
        for node in self.nodes():
            if hasattr(node, "lineno"):
                found.setdefault(self.source.span(node), []).append(node)
        return found

    def nodes(self, scope: ast.AST | None = None) -> tuple[ast.AST, ...]:
        """The nodes in a scope (of the whole module), as ``ast.walk`` gives them."""
        scope = self.module if scope is None else scope
        if scope not in self._inside:
            self._inside[scope] = tuple(ast.walk(scope))
        return self._inside[scope]

    @cached_property
    def loads(self) -> dict[str, list[ast.Attribute]]:
        """The attributes that are read, by name."""
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.nodes():
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.setdefault(node.attr, []).append(node)
        return found

    @cached_property
    def _stores(self) -> Counter[tuple[ast.AST, str]]:
        """How often each name is bound, by its function, and each attribute, by the file."""
        targets = (n for n in self.nodes() if isinstance(n, ast.Name | ast.Attribute))
        return Counter(self._place(n) for n in targets if not isinstance(n.ctx, ast.Load))

    def _place(self, target: ast.Name | ast.Attribute) -> tuple[ast.AST, str]:
        if isinstance(target, ast.Attribute):
            return self.module, f".{target.attr}"
        return self.function(target), target.id

    def is_bound_once(self, target: ast.Name | ast.Attribute) -> bool:
        """Whether a function binds a name nowhere else, or a file an attribute of this name."""
        return self._stores[self._place(target)] == 1

    def is_kept(self, name: ast.Name | ast.Attribute) -> bool:
        """Whether no statement of its function, or of the file, can give it another value."""
        place, written = self._place(name)
        given = {n.arg for n in ast.walk(getattr(place, "args", name)) if isinstance(n, ast.arg)}
        return self._stores[place, written] + (written in given) <= 1

    @cached_property
    def texts(self) -> frozenset[str]:
        """The strings that are written."""
        constants = (n.value for n in self.nodes() if isinstance(n, ast.Constant))
        return frozenset(text for text in constants if isinstance(text, str))

    @cached_property
    def reads_unnamed(self) -> bool:
        """Whether attributes may be read whose names are not written."""
        modules = _modules(self.module)
        return any(_is_unnamed(node, modules) for node in self.nodes())

    def expression(self, site: Site) -> ast.expr | None:
        """The outermost expression with exactly this span."""
        found = [n for n in self._at.get(site.span, ()) if isinstance(n, ast.expr)]
        return found[0] if found else None

    def statement(self, site: Site) -> ast.stmt | None:
        """The innermost statement that holds this span."""
        nodes = self._at.get(site.span, ())
        node: ast.AST | None = nodes[0] if nodes else None
        while node is not None and not isinstance(node, ast.stmt):
            node = self._parent.get(node)
        return node

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around ``node``."""
        return self._parent.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around ``node``, nearest first, the module last."""
        above = self._parent.get(node)
        while above is not None:
            yield above
            above = self._parent.get(above)

    def function(self, node: ast.AST) -> ast.AST:
        """The function (or module) whose body ``node`` is in."""
        for above in self.ancestors(node):
            if isinstance(above, (*FUNCTIONS, ast.Module)):
                return above
        return self.module

    def handles(self, site: Site) -> bool:
        """Whether the statement at ``site`` stands in an ``except`` of its function."""
        node = self.statement(site)
        above = self.ancestors(node) if node is not None else ()
        within = takewhile(lambda one: not isinstance(one, FUNCTIONS), above)
        return any(isinstance(one, ast.ExceptHandler) for one in within)

    def block(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements of the block that ``node`` is one of."""
        parent = self._parent.get(node, self.module)
        for name in BLOCKS:
            block = getattr(parent, name, None)
            if isinstance(block, list) and node in block:
                return block
        return [node]

    def excludes(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether only one of two nodes runs: they are in two arms of an ``if``, in no loop."""
        above, beside = [one, *self.ancestors(one)], [other, *self.ancestors(other)]
        common = next(node for node in above if node in beside)
        around = [common, *self.ancestors(common)]
        if not isinstance(common, ast.If) or any(
            isinstance(n, (ast.For, ast.While)) for n in around
        ):
            return False
        first, second = above[above.index(common) - 1], beside[beside.index(common) - 1]
        return common.test not in (first, second) and (first in common.body) != (
            second in common.body
        )

    def following(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements after ``node`` in its block."""
        block = self.block(node)
        return block[block.index(node) + 1 :]

    def can_be_preceded(self, call: Site, dataset: Site | None) -> bool:
        """Whether statements before the one that holds a loader's call run right before the call.

        In a display or among arguments they do where the data set has a name already: one that
        is made there would be made before its neighbours.
        """
        node = self.expression(call)
        given = self.expression(dataset) if dataset is not None else None
        above = self._parent.get(node) if node is not None else None
        if isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)):
            while isinstance(above, (ast.Tuple, ast.List, ast.Dict, ast.Call, ast.keyword)):
                above = self._parent.get(above)
        return isinstance(above, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr))

    def site(self, node: ast.AST) -> Site:
        """Where a node stands."""
        return self.source.site(node)

    def text(self, node: ast.AST) -> str:
        """The source text of a node."""
        return self.source.segment(self.source.span(node))

    def names(self, scope: ast.AST) -> frozenset[str]:
        """Every identifier used in a scope."""
        found = {n.id for n in self.nodes(scope) if isinstance(n, ast.Name)}
        return frozenset(found | {n.arg for n in self.nodes(scope) if isinstance(n, ast.arg)})

    def taken(self, node: ast.AST) -> frozenset[str]:
        """The names that a new one must not be where ``node`` is."""
        scope = self.function(node)
        ours = (n for n in self.nodes(scope) if isinstance(n, ast.Name))
        found = {n.id for n in ours if not self.excludes(n, node)}
        return frozenset(found | {n.arg for n in self.nodes(scope) if isinstance(n, ast.arg)})

    def bound(self, scope: ast.AST) -> frozenset[str]:
        """The names that are a function's own (or a module's)."""
        own = [n for n in self.nodes(scope) if self.function(n) is scope]
        shared = {s for n in own if isinstance(n, (ast.Global, ast.Nonlocal)) for s in n.names}
        names = {n.id for n in own if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        return (
            frozenset(names | {n.arg for n in self.nodes(scope) if isinstance(n, ast.arg)}) - shared
        )

    def read_after(self, node: ast.stmt, name: str) -> bool:
        """Whether ``name`` (or ``self.x``) is read after a statement in the same function."""
        end = self.source.span(node)
        limit = (end.end_line, end.end_column)
        if "." in name and name.startswith("self."):
            return True
        nodes = self.nodes(self.function(node))
        later = [c for c in nodes if _reads(c, name) and self._begins(c) >= limit]
        if not later or "." in name:
            return bool(later)
        stores = [
            statement
            for statement in nodes
            if isinstance(statement, ast.Assign)
            and self._begins(statement) >= limit
            and any(isinstance(t, ast.Name) and t.id == name for t in statement.targets)
        ]
        unbound = [read for read in later if not self.is_of_own_loop(read, name, node)]
        return not all(any(self.precedes(s, read) for s in stores) for read in unbound)

    def is_of_own_loop(self, read: ast.AST, name: str, other: ast.stmt) -> bool:
        """Whether a loop around it, but not around the other statement, gives the name a value."""
        around, known = [read, *self.ancestors(read)], set(self.ancestors(other))
        return any(
            isinstance(above, (ast.For, ast.AsyncFor))
            and above not in known
            and below in above.body
            and name in names_in(above.target)
            for below, above in pairwise(around)
        )

    def reads(self, scope: ast.AST, name: str) -> list[ast.AST]:
        """Where a name (or ``self.x``) is read in a scope."""
        return [node for node in self.nodes(scope) if _reads(node, name)]

    def attribute_of(self, node: ast.AST) -> str:
        """``x`` of ``node.x``, which is read and not called; nothing else."""
        above = self.parent(node)
        around = self.parent(above) if above is not None else None
        called = isinstance(around, ast.Call) and around.func is above
        read = isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Load) and not called
        return above.attr if isinstance(above, ast.Attribute) and read else ""

    def read_of(self, owner: Site) -> Site | None:
        """Where an attribute of what stands there is read: neither called nor bound."""
        base = self.expression(owner)
        node = self.parent(base) if base is not None else None
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return None
        around = self.parent(node)
        called = isinstance(around, ast.Call) and around.func is node
        return None if called else self.site(node)

    def _begins(self, node: ast.AST) -> tuple[int, int]:
        span = self.source.span(node)
        return span.line, span.column

    def precedes(self, store: ast.stmt, read: ast.AST) -> bool:
        """Whether a statement has surely run where something is read: earlier in a block around."""
        block = self.block(store)
        above = [read, *self.ancestors(read)]
        if any(s in above for s in block[block.index(store) + 1 :]):
            return True
        parent = self._parent.get(store)
        return isinstance(parent, ast.With) and self.precedes(parent, read)


def names_in(node: ast.AST) -> set[str]:
    """The names that stand in it, read or bound."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def is_name(node: ast.AST, name: str) -> bool:
    """Whether it is this name, and nothing around it."""
    return isinstance(node, ast.Name) and node.id == name


HIDDEN = frozenset({"vars", "__dict__", "attrgetter", "__getattribute__"})


def _modules(module: ast.Module) -> set[str]:
    """The names that stand for modules alone here: ``import torchvision.models``."""
    found: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in ("torch", "torchvision"):
            found |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            others.add(node.id)
        elif isinstance(node, ast.arg):
            others.add(node.arg)
    return found - others


def _is_unnamed(node: ast.AST, modules: set[str]) -> bool:
    """``vars(x)``; ``getattr(x, f"loss_{name}")``, which can be any attribute of an object."""
    if isinstance(node, ast.Attribute):
        return node.attr in HIDDEN and written(node).partition(".")[0] not in modules
    if isinstance(node, ast.Call) and written(node.func) == "getattr":
        dynamic = len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
        return dynamic and written(node.args[0]).partition(".")[0] not in modules
    return isinstance(node, ast.Name) and node.id in HIDDEN


def _reads(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute) and name.endswith(node.attr):
        return isinstance(node.ctx, ast.Load) and written(node) == name
    return False


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c`` and of ``c``; "" of what has no name."""
    return getattr(node, "attr", getattr(node, "id", ""))


def written(target: ast.expr) -> str:
    """An expression as text; that of a name is not worth a printer."""
    return target.id if isinstance(target, ast.Name) else ast.unparse(target)
