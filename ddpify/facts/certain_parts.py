"""Which parts of a module each forward uses for certain: those that are left give no gradient.

DistributedDataParallel waits for every parameter, so a part that one forward passes by ends the job
at the second step. It is asked of the text, for what decides (`self.gcn`, an argument) is another
thing tomorrow. ::

    for i in range(self.depth):
        x = self.convs[i](x)                     # all of `convs`
        x = self.graph[i](x) if self.gcn else x  # of `graph` only where `gcn` says so

What a method makes with a layer and nothing reads: the layer gets no gradient.

The last layer of a chain whose sum of skips is what counts, as wave nets have it. ::

    for i in range(self.depth):
        skip = skip + self.skips[i](x)
        x = x + self.residuals[i](x)  # nobody reads what the last of `residuals` gives
    return self.end(skip)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ddpify.facts.constructed import OwnPart, behind, made_under, method, own, own_name, taken_up
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import names_in

_WALKS = frozenset(
    "children modules named_children named_modules parameters named_parameters _modules".split()
)
_ALL = "*"
_OPEN = "which `forward` runs is decided while the program runs"
Look = Callable[[ClassInfo], dict[str, OwnPart]]


def passed_by(
    info: ClassInfo,
    look: Look,
    omitted: dict[str, object] | None = None,
    chosen: frozenset[str] = frozenset(),
) -> str:
    """Why a forward of a class may pass by a part that has parameters; "" where none is.

    ``look`` gives the parts of a class, ``omitted`` are arguments that no call which trains gives,
    with their defaults. ``chosen`` are arguments by which several calls before one backward use
    other parts each, and together all.
    """
    node, parts = method(info, "forward"), look(info)
    if node is None:
        return _OPEN if _is_chosen(info) else ""
    reading = _Uses(info, look, omitted or {}, spared=set(chosen))
    used = reading.of_method(node)
    if _ALL in used:
        return ""
    if reading.by_name:
        return "layers are looked up by their names"
    why = (reading.why_not(name) for name in sorted(set(parts) - used - taken_up(info)))
    if found := next(filter(None, why), ""):
        return found
    last = next((n for one in reading.read for n in dropped(one, frozenset(parts))), "")
    return f"nothing reads what the last of `{last}` gives" if last else ""


def _is_chosen(info: ClassInfo) -> bool:
    """``self.forward = self.forward_fused if fused else self.forward_plain``."""
    return any(
        n.attr == "forward" and isinstance(n.ctx, ast.Store)
        for one in info.mro()
        for n in own(one.node)
    )


def _ends(block: list[ast.stmt]) -> bool:
    ends = (ast.Return, ast.Raise, ast.Continue, ast.Break)
    return bool(block) and isinstance(block[-1], ends)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost expressions of a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        else:
            yield from _expressions(child)


@dataclass
class _Uses:
    """The methods that a forward runs (``read``), and on what each use of a part depends.

    ``places`` are the names of the loops around that are read.
    """

    info: ClassInfo
    look: Look
    omitted: dict[str, object]
    read: dict[ast.FunctionDef, set[str]] = field(default_factory=dict)
    asked: dict[str, set[str]] = field(default_factory=dict)
    listed: dict[str, set[str]] = field(default_factory=dict)
    pieces: dict[str, set[str]] = field(default_factory=dict)
    places: frozenset[str] = frozenset()
    spared: set[str] = field(default_factory=set)
    by_name: bool = False

    def __post_init__(self) -> None:
        self.parts = self.look(self.info)

    def of_method(self, node: ast.FunctionDef, told: frozenset[str] = frozenset()) -> set[str]:
        """What a call of a method uses for certain: parts, and local names as ``%name``."""
        if node not in self.read:
            self.read[node] = set()
            self.read[node] = self._block(node.body, told)
        return {one for one in self.read[node] if not one.startswith("%")}

    def _block(self, body: list[ast.stmt], told: frozenset[str]) -> set[str]:
        found: set[str] = set()
        for index, statement in enumerate(body):
            if not isinstance(statement, ast.If):
                found |= self._statement(statement, told)
                continue
            one, other, rest = statement.body, statement.orelse, body[index + 1 :]
            if _ends(one) or _ends(other):  # what follows belongs to the side that goes on
                one, other = ([*s, *(() if _ends(s) else rest)] for s in (one, other))
                rest = []
            found |= self._sides(statement.test, one, other, told)
            return found | self._block(rest, told)
        return found

    def _sides(
        self, test: ast.expr, one: list[ast.stmt], other: list[ast.stmt], told: frozenset[str]
    ) -> set[str]:
        found, decided = self._expression(test, told), self._decided(test)
        if decided is not None:
            return found | self._block(one if decided else other, told)
        alive = [side for side in (one, other) if not (side and isinstance(side[-1], ast.Raise))]
        sides = [self._block(side, told | self._behind(test)) for side in alive]
        if names_in(test) & self.places:  # `if i < len(self.convs) - 1`: each comes to its own
            return found.union(*sides)
        return found | (set.intersection(*sides) if sides else set())

    def _decided(self, test: ast.expr) -> bool | None:
        """What a test says whenever the model trains."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._decided(test.operand)
            return None if inner is None else not inner
        if own_name(test) == "training":
            return True
        none = isinstance(test, ast.Compare) and ast.unparse(test).endswith(
            ("is None", "is not None")
        )
        name = test.left if none and isinstance(test, ast.Compare) else test
        if not isinstance(name, ast.Name) or name.id not in self.omitted:
            return None
        value = self.omitted[name.id]
        return bool(value) if not none else (value is None) != ("not None" in ast.unparse(test))

    def _statement(self, node: ast.stmt, told: frozenset[str]) -> set[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return set().union(*(self._expression(n, told) for n in _expressions(node)))
        before = self.places
        found: set[str] = set()
        if isinstance(node, ast.For | ast.AsyncFor):
            self.places = self.places | names_in(node.target)
            held = self._expression(node.iter, told)
            found = self._block(node.body, told)
            each = {f"%{name}" for name in names_in(node.target)}
            found |= held if each & found or not (held & set(self.parts)) else set()
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr | ast.withitem):
                    found |= self._expression(child, told)
            found |= self._block(getattr(node, "body", []), told)
        for name in ("orelse", "finalbody"):
            found |= self._block(getattr(node, name, []), told)
        self.places = before
        return found

    def _expression(self, node: ast.AST, told: frozenset[str]) -> set[str]:
        if isinstance(node, ast.IfExp):
            one, other = node.body, node.orelse
            return self._sides(node.test, [ast.Expr(one)], [ast.Expr(other)], told)
        if isinstance(node, ast.BoolOp):
            more = told.union(*(self._behind(one) for one in node.values))
            for value in node.values[1:]:
                self._expression(value, more)
            return self._expression(node.values[0], told)
        if isinstance(node, ast.Name):
            return {f"%{node.id}"} if isinstance(node.ctx, ast.Load) else set()
        found = self._of_self(node, told)
        if found is not None:
            return found
        children = ast.iter_child_nodes(node)
        return set().union(*(self._expression(child, told) for child in children))

    def _of_self(self, node: ast.AST, told: frozenset[str]) -> set[str] | None:
        """What an expression about ``self`` uses; None where its parts say it."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "super"):
            return self._looked_up(node, told)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("super("):
            return self._inherited(node, told)
        if isinstance(node, ast.Subscript) and own_name(node.value) in self.parts:
            name, found = own_name(node.value), self._expression(node.slice, told)
            whole = not self.parts[name].several or bool(names_in(node.slice) & self.places)
            piece = name if whole else f"{name}[{ast.unparse(node.slice)}]"
            return found | self._use(piece, told)
        if isinstance(node, ast.Attribute) and own_name(node.value) in self.parts:
            return self._piece(own_name(node.value), node.attr, told)
        if name := own_name(node):
            inner = method(self.info, name)
            if inner is not None:
                return self.of_method(inner, told)
            return {_ALL} if name in _WALKS | {"_modules"} else self._use(name, told)
        return None

    def _use(self, part: str, told: frozenset[str]) -> set[str]:
        name, _, piece = part.partition("[")
        self.asked.setdefault(name, set()).update(told)
        self.listed.setdefault(name, set()).add(piece)
        return {part}

    def _piece(self, name: str, attr: str, told: frozenset[str]) -> set[str]:
        """``self.body.features(x)``, of a class of the project: a part, or what a method uses."""
        info = self.parts[name].info
        own = self.look(info) if info is not None else {}
        inner = method(info, attr) if info is not None else None
        if info is None or (attr not in own and inner is None) or attr == "forward":
            return self._use(name, told)
        used = {attr}
        if inner is not None:
            used = _Uses(info, self.look, {}).of_method(inner)
        self._use(name, told)
        self.pieces.setdefault(name, set()).update(used)
        return {name} if set(own) <= self.pieces[name] else {f"{name}[.{attr}]"}

    def _looked_up(self, call: ast.Call, told: frozenset[str]) -> set[str]:
        inner = set().union(*(self._expression(one, told) for one in call.args[1:]))
        if not call.args or ast.unparse(call.args[0]) != "self" or len(call.args) < 2:
            return inner
        key = call.args[1]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return inner | (self._use(key.value, told) if key.value in self.parts else set())
        self.by_name = True
        return inner

    def _inherited(self, call: ast.Call, told: frozenset[str]) -> set[str]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        found = set().union(*(self._expression(one, told) for one in call.args))
        nodes = (n for one in self.info.mro()[1:] for n in one.node.body)
        known = (n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == name)
        inner = next((n for n in known if n not in self.read), None)
        return found | (self.of_method(inner, told) if inner is not None else {_ALL})

    def _behind(self, test: ast.expr) -> frozenset[str]:
        return behind(self.info, test)

    def why_not(self, name: str) -> str:
        """What is wrong with a part that is not used for certain; "" for nothing."""
        if name not in self.asked:
            return f"`{name}` is never used"
        if self.asked[name] & (made_under(self.info, name) | {name} | self.spared):
            return ""  # the constructor makes it where it is asked for
        pieces = self.listed[name] - {""}
        if name in self.pieces or len(pieces) == 1:
            return f"of `{name}` only parts are used"
        return f"`{name}` is used under a condition only" if not pieces else ""


_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def dropped(function: ast.FunctionDef, parts: frozenset[str]) -> Iterator[str]:
    """The parts of which no statement reads what they give last."""
    loads = [
        n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]
    for statement, around in _assignments(function, ()):
        used = _layers(statement.value, parts, around)
        names = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        plain = all(isinstance(n, ast.Name | ast.Tuple) for n in statement.targets)
        end = (statement.end_lineno or 0, statement.end_col_offset or 0)
        read = any(n.id in names and (n.lineno, n.col_offset) >= end for n in loads)
        if used and plain and not read and not _is_kept(function, names):
            again = sum(n.attr == used for n in own(function)) > 1
            if around or not again:
                yield used


def _assignments(
    node: ast.AST, around: tuple[ast.stmt, ...]
) -> Iterator[tuple[ast.Assign, tuple[ast.stmt, ...]]]:
    """Assignments, each with its loops; none that a condition on the round lets out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign):
            yield child, around
        elif isinstance(child, _LOOPS):
            yield from _assignments(child, (*around, child))
        elif isinstance(child, ast.If) and around:
            continue
        elif isinstance(child, ast.stmt | ast.excepthandler):
            yield from _assignments(child, around)


def _layers(value: ast.expr, parts: frozenset[str], around: tuple[ast.stmt, ...]) -> str:
    """A part that a call in an expression is of: in a loop, one of its own in each round."""
    changing = {
        n.id
        for loop in around
        for n in ast.walk(loop)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for call in (n for n in ast.walk(value) if isinstance(n, ast.Call)):
        found = [n.attr for n in own(call.func) if n.attr in parts]
        words = names_in(call.func)
        if isinstance(call.func, ast.Name):  # `for conv, norm in zip(self.convs, self.norms)`
            found = [part for loop in around for part in _held(loop, call.func.id, parts)]
        if found and (not around or words & changing):
            return found[0]
    return ""


def _held(loop: ast.stmt, name: str, parts: frozenset[str]) -> list[str]:
    """The parts that a loop goes over, if that is what ``name`` is in it."""
    if not isinstance(loop, ast.For):
        return []
    names = names_in(loop.target)
    return [n.attr for n in own(loop.iter) if n.attr in parts and name in names]


def _is_kept(function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether somebody else reads them: a function inside, or who has all names."""
    inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef | ast.Lambda)][1:]
    words = {n.id for one in inner for n in ast.walk(one) if isinstance(n, ast.Name)}
    outer = any(isinstance(n, ast.Global | ast.Nonlocal) for n in ast.walk(function))
    whole = names_in(function) & {"locals", "eval"}
    return bool(words & names) or outer or bool(whole)
