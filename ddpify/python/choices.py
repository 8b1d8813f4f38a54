"""Which layers a function uses as a draw decides, told from its text: models are not run.

    for layer, dropped in zip(self.layers, torch.rand(6) < 0.1):
        x = x if dropped else layer(x)

Names are written ``name`` for ``self.name`` and ``.name`` for a local one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from ddpify.python.words import NUMPY, PYTHON, TORCH

_DRAWS: Final = {
    "random": (PYTHON, "random uniform choice choices randint randrange gauss sample"),
    "numpy.random": (NUMPY, "rand random uniform choice randint binomial randn random_sample"),
    "torch": (TORCH, "rand randn randint bernoulli randperm multinomial"),
}
_FILLS: Final = frozenset("uniform_ bernoulli_ bernoulli random_ normal_".split())  # of tensors
_PICKS: Final = frozenset("choice choices sample".split())
_SHAPES: Final = frozenset("shape size dim ndim len isinstance".split())
# What gives the elements of what it is given.
_HANDS_ON: Final = frozenset("zip enumerate list tuple reversed iter values items children".split())
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp)
_DEPTH: Final = 4  # of functions that call functions


class Names(Protocol):
    """What names stand for where a function is written."""

    def library(self, node: ast.expr) -> str:
        """The name that a library has for what is called; empty for what is none's."""

    def function(self, node: ast.expr) -> tuple[ast.FunctionDef, Names] | None:
        """The function of the project that is called: ``f``, or a method as ``self.f``."""


@dataclass(frozen=True)
class LayerChoice:
    """A draw of a ``library`` that decides in ``test`` whether ``layer`` is used."""

    library: str
    names: Names
    test: ast.expr
    draw: ast.Call
    layer: ast.expr


def choices(
    function: ast.FunctionDef, names: Names, layers: Iterable[str], depth: int = _DEPTH
) -> Iterator[LayerChoice]:
    """The choices that a function makes, and those of the functions that it calls."""
    reader = _Choosing(function, names, frozenset(layers), depth)
    yield from reader.choices()
    for inner, place, given in reader.entered() if depth else ():
        yield from choices(inner, place, given, depth - 1)


class _Choosing:
    """One function; ``layers`` are what it is known to hold layers by."""

    def __init__(
        self, function: ast.FunctionDef, names: Names, layers: frozenset[str], depth: int
    ) -> None:
        self.function = function
        self.names = names
        self.depth = depth
        self.nodes = list(ast.walk(function))
        self.bound = [pair for node in self.nodes for pair in _bindings(node)]
        self.layers = set(layers)
        self.drawn: dict[str, tuple[str, ast.Call]] = {}
        given = {argument.arg for argument in function.args.args}
        grown = -1
        while grown != len(self.layers) + len(self.drawn):
            grown = len(self.layers) + len(self.drawn)
            for name, value in self.bound:
                if self.is_layer(value):
                    self.layers.add(f".{name}")
                draw = self.draw_in(value) if name not in given | self.drawn.keys() else None
                if draw is not None:
                    self.drawn[name] = draw

    def choices(self) -> Iterator[LayerChoice]:
        """Those of its own, in the order of the tree."""
        for test, used in (*self._branches(), *self._picks()):
            draw = self.draw_in(test)
            if draw is not None:
                yield LayerChoice(draw[0], self.names, test, draw[1], used)

    def entered(self) -> Iterator[tuple[ast.FunctionDef, Names, frozenset[str]]]:
        """The functions that it calls, with the layers that they have by name."""
        for node, (inner, names) in self._calls.items():
            own = isinstance(node.func, ast.Attribute)
            places = [one.arg for one in inner.args.args if one.arg != "self"]
            pairs = list(zip(places, node.args, strict=False))
            pairs += [(one.arg or "", one.value) for one in node.keywords]
            given = {f".{place}" for place, value in pairs if self.is_layer(value)}
            kept = {name for name in self.layers if own and not name.startswith(".")}
            if (given or kept) and inner is not self.function:
                yield inner, names, frozenset(given | kept)

    @cached_property
    def _calls(self) -> dict[ast.Call, tuple[ast.FunctionDef, Names]]:
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        found = ((node, self.names.function(node.func)) for node in calls)
        return {node: inner for node, inner in found if inner is not None}

    # -- what is a layer, and what is drawn

    def is_layer(self, node: ast.expr) -> bool:
        """Whether an expression is a layer, or layers."""
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.is_layer(node.value)
        if isinstance(node, _COMPREHENSIONS):
            return self.is_layer(node.elt)
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(map(self.is_layer, node.elts))
        if isinstance(node, ast.Call):
            name = spelled(node.func).lstrip(".") or _last(node.func)
            handed = name in _HANDS_ON or name in _PICKS or node in self._calls
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return handed and any(map(self.is_layer, (*node.args, *owner)))
        return spelled(node) in self.layers

    def draw_in(self, node: ast.AST) -> tuple[str, ast.Call] | None:
        """The draw that a value is computed from; that of a layer's output is none."""
        if isinstance(node, ast.Name):
            return self.drawn.get(node.id)
        shape = isinstance(node, ast.Attribute) and node.attr in _SHAPES
        if shape or (
            isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        ):
            return None
        if isinstance(node, ast.Call):
            library = self._library(node)
            if library:
                return library, node
            if spelled(node.func) in self.layers or _last(node.func) in _SHAPES:
                return None
            inner = self._drawn_by(node)
            if inner is not None:
                return inner
        found = (self.draw_in(child) for child in ast.iter_child_nodes(node))
        return next((draw for draw in found if draw is not None), None)

    def _library(self, node: ast.Call) -> str:
        name = self.names.library(node.func)
        if library_drawn(name) and "generator" not in {k.arg for k in node.keywords}:
            return library_drawn(name)
        fills = isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS
        return TORCH if fills and not name else ""

    def _drawn_by(self, node: ast.Call) -> tuple[str, ast.Call] | None:
        """What a function of the project returns that draws."""
        found = self._calls.get(node) if self.depth else None
        if found is None or found[0] is self.function:
            return None
        inner = _Choosing(*found, frozenset(), self.depth - 1)
        returned = (one.value for one in inner.nodes if isinstance(one, ast.Return) and one.value)
        draw = next((d for d in map(inner.draw_in, returned) if d is not None), None)
        return (draw[0], node) if draw is not None else None

    # -- what decides

    def _branches(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Conditions of which one side uses a layer that the other does not."""
        for node in self.nodes:
            if isinstance(node, ast.IfExp):
                yield from self._forked(node.test, [node.body], [node.orelse])
            for field in ("body", "orelse"):
                held = getattr(node, field, None)
                block: list[ast.AST] = held if isinstance(held, list) else []
                for number, one in enumerate(block):
                    if isinstance(one, ast.If):
                        rest = block[number + 1 :] if _leaves(one) else []
                        yield from self._forked(one.test, one.body, [*one.orelse, *rest])

    def _forked(
        self, test: ast.expr, one: Iterable[ast.AST], other: Iterable[ast.AST]
    ) -> Iterator[tuple[ast.expr, ast.expr]]:
        left, right = (dict(self._used(side)) for side in (one, other))
        apart = [(left | right)[key] for key in (left | right) if (key in left) != (key in right)]
        if apart:
            yield test, apart[0]

    def _used(self, block: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
        """The layers that are called, given to who calls them, or returned."""
        for node in (below for one in block for below in ast.walk(one)):
            if isinstance(node, ast.Call) and self.is_layer(node.func):
                yield ast.unparse(node.func), node
            elif isinstance(node, ast.Return) and node.value and self.is_layer(node.value):
                yield ast.unparse(node.value), node.value

    def _picks(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """``self.layers[drawn]``, ``random.choice(self.layers)``, ``[… for … if drawn]``."""
        for node in self.nodes:
            if isinstance(node, ast.Subscript) and self.is_layer(node.value):
                yield node.slice, node
            elif isinstance(node, ast.Call) and _last(node.func) in _PICKS:
                yield from ((node, one) for one in node.args[:1] if self.is_layer(one))
            elif isinstance(node, _COMPREHENSIONS) and self.is_layer(node.elt):
                yield from ((test, node.elt) for each in node.generators for test in each.ifs)


def library_drawn(name: str) -> str:
    """The library from whose stream a function draws; empty for one that is not known to."""
    start, _, last = name.rpartition(".")
    library, drawing = _DRAWS.get(start, ("", ""))
    return library if last in drawing.split() else ""


def spelled(node: ast.expr) -> str:
    """``name`` for ``self.name``, ``.name`` for a local one; empty for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    return f".{node.id}" if isinstance(node, ast.Name) else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else spelled(node)[1:]


def _leaves(node: ast.If) -> bool:
    inner = (below for one in node.body for below in ast.walk(one))
    return any(isinstance(one, (ast.Return, ast.Continue, ast.Break)) for one in inner)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a node binds, each with what it, or each element of what, it is bound to."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _paired(target, value)
        case (
            ast.AugAssign(target=target, value=ast.expr() as value)
            | ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield from _paired(target, value)
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield from _paired(target, value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The parts of ``layer, drop in zip(layers, drops)``, each with what it is taken from."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = [value] * len(target.elts)
        called = spelled(value.func) if isinstance(value, ast.Call) else ""
        if isinstance(value, ast.Call) and called == ".zip" and len(value.args) == len(values):
            values = list(value.args)
        elif isinstance(value, ast.Call) and called == ".enumerate" and len(values) == 2:
            yield from _paired(target.elts[1], value.args[0])
            return
        elif isinstance(value, ast.Tuple) and len(value.elts) == len(values):
            values = value.elts
        for one, part in zip(target.elts, values, strict=True):
            yield from _paired(one, part)
