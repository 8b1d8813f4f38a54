"""Who reads the number of a round, or of all rounds: what ranks do that take a sample each a round.

There are fewer rounds then. What is said of them is said of samples; what they decide over, other
than what is shown, would come about at another moment.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from ddpify.facts.events import Call, LoopEnd
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit
from ddpify.rules.shared.sample_counts import WORLD, Counter, every
from ddpify.rules.shared.step_conditions import StepWindow, stored
from ddpify.source import Site

_SUMS = (Measure.SUM, Measure.COUNT)
_TRAINS = (".backward", ".step", ".zero_grad")
_READ = (ast.Name, ast.Attribute)
_COUNTED = (ast.AugAssign, ast.Assign)


class WrongRead(Exception):
    """Why ranks cannot take a sample each."""


class RoundReads:
    """The places where a loop's counter and its length are read."""

    def __init__(self, facts: Facts, loop: TrainingLoop, counter: Counter) -> None:
        self.facts, self.loop, self.counter = facts, loop, counter
        self.tree: Tree = facts.tree(loop.batch.site)
        self.node = self.tree.statement(loop.batch.site) or self.tree.module

    def edits(self, window: StepWindow, steps: str) -> Iterator[Edit]:
        """What makes numbers of rounds numbers of samples, but for the step's own condition.

        Raises `WrongRead` where one decides something, or a sum is divided by another number.
        """
        self.window, self.steps = window, steps
        for _ in self.quotients():
            pass  # what they are divided by is of samples, as all numbers of rounds are
        asked = {id(n) for one in self.window.block[-1:] for n in ast.walk(_test(one))}
        try:
            found = [pair for one in self._body() for pair in self.counter.conversions(one)]
        except ValueError as wrong:
            raise WrongRead(str(wrong)) from None
        for node, code in found:
            period = every(node)
            own = period is not None and ast.unparse(period.period) == self.steps
            if self.counter.index and (own or id(node) in asked):
                continue  # the step's own condition
            if not isinstance(node, _COUNTED) and not self._is_told(self.tree, node, period):
                raise self._wrong(self.tree, node)
            value = node
            if isinstance(node, _COUNTED):  # `step += 1`
                value, code = node.value, re.split(r" \+?= ", code)[1]
            if code != ast.unparse(value):
                yield edit(self.facts, How.REPLACE, self.tree.site(value), code)
        yield from self._of_lengths()

    def _body(self) -> list[ast.stmt]:
        return getattr(self.node, "body", [])

    def _wrong(self, tree: Tree, node: ast.AST) -> WrongRead:
        site = tree.site(node)
        return WrongRead(f"`{self.facts.text(site)}` would be of fewer rounds ({site})")

    def _of_lengths(self) -> Iterator[Edit]:
        mine = set(self.loop.loaders)
        calls = (c for c in self.facts.calls if c.name == "builtins.len" and c.args)
        for site in sorted({c.site for c in calls if mine & set(_behind(c))}):
            tree = self.facts.tree(site)
            node = tree.expression(site)
            test = _test(self.window.block[-1])
            own = self.counter.index and any(one is node for one in ast.walk(test))
            if node is None or own or self._is_of_bar(tree, node):
                continue
            if isinstance(tree.parent(node), ast.Call) and not self._is_told(tree, node, None):
                raise self._wrong(tree, node)
            yield edit(self.facts, How.REPLACE, site, f"{{}} * {WORLD}")

    def _is_of_bar(self, tree: Tree, node: ast.AST) -> bool:
        """``tqdm(loader, total=len(loader))``"""
        bars = (a for a in tree.ancestors(node) if isinstance(a, ast.Call))
        values = (self.facts.values.get(tree.site(bar), NOTHING) for bar in bars)
        return any(value.of(Kind.PROGRESS) for value in values)

    def _is_told(self, tree: Tree, node: ast.AST, asked: object) -> bool:
        """Whether it is asked for the step, or goes into what is shown alone.

        What is done every so many samples may be anything but a part of the training.
        """
        for above in tree.ancestors(node):
            match above:
                case ast.If(test=test, body=body, orelse=orelse) if node in ast.walk(test):
                    block = (*body, *orelse)
                    return (
                        above is self.window.block[-1]
                        or all(self._shows(tree, one) for one in block)
                        or (asked is not None and not any(self._trains(tree, one) for one in block))
                    )
                case ast.Assign(targets=[target]):
                    return self._asks_step(ast.unparse(target))
                case ast.stmt():
                    return self._shows(tree, above)
        return False

    def _asks_step(self, name: str) -> bool:
        """``last = (i + 1) % 4 == 0``"""
        test = _test(self.window.block[-1])
        return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(test))

    def _shows(self, tree: Tree, statement: ast.stmt) -> bool:
        """Whether a statement shows something, and neither trains nor binds anything."""
        site = tree.site(statement)
        shown = any(_runs_in(one.call, site) for one in self.facts.effects)
        shown = shown or any(_runs_in(call, site) for call, _ in self.facts.sinks)
        return shown and not stored(statement) and not self._trains(tree, statement)

    def _trains(self, tree: Tree, statement: ast.stmt) -> bool:
        site = tree.site(statement)
        forwards = {forward.call for forward in self.facts.training_forwards}
        calls = (c for c in self.facts.calls if c.name in _TRAINS or c in forwards)
        cut = any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(statement))
        return cut or any(_runs_in(call, site) for call in calls)

    # -- what sums over samples are divided by

    def quotients(self) -> Iterator[Site]:
        """The numbers of rounds that sums over samples are divided by.

        Raises `WrongRead` where another number divides one.
        """
        for tree in self.facts.trees.values():
            for node in tree.nodes():
                if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
                    continue
                if not self._is_sum(tree, node.left) or self._is_sum(tree, node.right):
                    continue
                if self._has_rounds(tree, node.right):
                    yield tree.site(node.right)
                elif not self._is_of_all(tree, node.right):
                    text = self.facts.text(tree.site(node))
                    raise WrongRead(f"`{text}` would be of more samples ({tree.site(node)})")

    def _is_sum(self, tree: Tree, node: ast.expr) -> bool:
        """Whether it is made of what the loop adds up, by this name or in an object."""
        value = self.facts.values.get(tree.site(node), NOTHING)
        if value.measure in _SUMS and set(self.loop.loaders) & set(_fed_by(value)):
            return True
        return any(self._is_named_sum(tree, n) for n in ast.walk(node) if isinstance(n, _READ))

    def _is_named_sum(self, tree: Tree, node: ast.Name | ast.Attribute) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in self._kept
        own = tree is self.tree and tree.function(node) is tree.function(self.node)
        return own and node.id in self._sums

    @cached_property
    def _ends(self) -> list[LoopEnd]:
        return [end for end in self.facts.ends if end.loop.site == self.loop.batch.site]

    @cached_property
    def _sums(self) -> set[str]:
        return {name for end in self._ends for name in end.sums}

    @cached_property
    def _kept(self) -> set[str]:
        """Attributes that the loop adds to."""
        dotted = {name.rpartition(".")[2] for name in self._sums if "." in name}
        return dotted | {name for end in self._ends for _, name in end.owned}

    def _has_rounds(self, tree: Tree, node: ast.expr) -> bool:
        own = tree is self.tree and self.counter.names(node)
        return own or self._is_length_of(tree, node, Kind.LOADER, Kind.PROGRESS)

    def _is_of_all(self, tree: Tree, node: ast.expr) -> bool:
        """``len(data)``, and what ranks count."""
        value = self.facts.values.get(tree.site(node), NOTHING)
        known = value.measure is not Measure.UNIFORM
        return known or self._is_length_of(tree, node, Kind.DATASET)

    def _is_length_of(self, tree: Tree, node: ast.expr, *kinds: Kind) -> bool:
        sites = {tree.site(one) for one in ast.walk(node) if isinstance(one, ast.Call)}
        lengths = (c for c in self.facts.calls if c.name == "builtins.len" and c.site in sites)
        return any(call.args and call.args[0].of(*kinds) for call in lengths)


def _test(statement: ast.stmt) -> ast.expr:
    test: ast.expr = getattr(statement, "test", ast.Constant(value=None))
    return test


def _runs_in(call: Call, site: Site) -> bool:
    return any(one.within(site) for one in call.way)


def _fed_by(value: Value) -> Iterator[Thing]:
    for batch in value.dep(Kind.BATCH):
        yield from batch.inner.things if batch.inner is not None else ()


def _behind(call: Call) -> Iterator[Thing]:
    for thing in call.args[0].things:
        yield thing
        if thing.kind is Kind.PROGRESS and thing.inner is not None:
            yield from thing.inner.things
