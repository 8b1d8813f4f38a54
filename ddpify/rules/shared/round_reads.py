"""Who reads the number of a round, or of all rounds: what ranks do that take a sample each a round.

There are fewer rounds then. What is said of them is said of samples; what they decide over, other
than what is shown, would come about at another moment.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from ddpify.facts import carried
from ddpify.facts.events import Call, LoopEnd
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit
from ddpify.rules.shared.sample_counts import WORLD, Counter, Every, every
from ddpify.rules.shared.step_conditions import StepWindow, stored
from ddpify.source import Site

_SUMS = (Measure.SUM, Measure.COUNT)
_TRAINS = (".backward", ".step", ".zero_grad")
_STEERS = (Kind.OPTIMIZER, Kind.SCHEDULER)
_READ = (ast.Name, ast.Attribute)
_COUNTED = (ast.AugAssign, ast.Assign)


class WrongRead(Exception):
    """Why ranks cannot take a sample each."""


class RoundReads:
    """The places where a loop's counter and its length are read."""

    def __init__(self, facts: Facts, loop: TrainingLoop, counter: Counter) -> None:
        self.facts, self.loop, self.counter = facts, loop, counter
        self.counters = [counter]
        self.tree: Tree = facts.tree(loop.batch.site)
        self.node = self.tree.statement(loop.batch.site) or self.tree.module

    def edits(self, window: StepWindow, steps: str) -> Iterator[Edit]:
        """What makes numbers of rounds numbers of samples, but for the step's own condition.

        Raises `WrongRead` where one decides something, or a sum is divided by another number.
        """
        self.window, self.steps = window, steps
        yield from self._of_counts()
        for _ in self.quotients():
            pass  # what they are divided by is of samples, as all numbers of rounds are
        for counter in self.counters:
            yield from self._of_counter(counter)
        yield from self._of_lengths()

    def _of_counter(self, counter: Counter) -> Iterator[Edit]:
        asked = {id(n) for one in self.window.block[-1:] for n in ast.walk(_test(one))}
        try:
            later = self._later() if counter.index else []
            found = [pair for one in (*self._body(), *later) for pair in counter.conversions(one)]
        except ValueError as wrong:
            raise WrongRead(str(wrong)) from None
        for node, code in found:
            period = self._asked(node)
            own = period is not None and ast.unparse(period.rest.right) == self.steps
            if counter.index and (own or id(node) in asked):
                continue  # the step's own condition
            if counter.index and self._is_redrawn(self.tree, node):
                continue
            if not isinstance(node, _COUNTED) and not self._is_told(self.tree, node, period):
                raise self._wrong(self.tree, node)
            value = node
            if isinstance(node, _COUNTED):  # `step += 1`
                value, code = node.value, re.split(r" \+?= ", code)[1]
            elif self._is_before(counter, value) and self._is_after(counter, value):
                code = f"{counter.after} - 1"  # the number of the round that completes so many
            if code != ast.unparse(value):
                yield edit(self.facts, How.REPLACE, self.tree.site(value), code)

    def _is_before(self, counter: Counter, node: ast.AST) -> bool:
        return isinstance(node, ast.expr) and counter.first + counter.offset(node) == 0

    def _is_after(self, counter: Counter, node: ast.AST) -> bool:
        """Whether it is said where the next number is asked: ``if (i + 1) % 50 == 0: print(i)``."""
        for above in self.tree.ancestors(node):
            test = above.test if isinstance(above, ast.If) else None
            if test is None or node in ast.walk(test):
                continue
            asked = next((one for each in ast.walk(test) if (one := every(each))), None)
            if asked is not None and counter.names(asked.rest):
                number = counter.first + counter.offset(asked.rest.left)
                return number + (asked.last is not None) == 1
        return False

    def _asked(self, node: ast.AST) -> Every | None:
        """The condition that a part of it, ``i % 50``, is asked in."""
        above = self.tree.parent(node)
        return every(above) if above is not None and isinstance(node, ast.expr) else None

    def _of_counts(self) -> Iterator[Edit]:
        """Other names to which each round adds the same: of samples, too.

        What is added once a step, or as often as something is shown, is what it was.
        """
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign) and self._goes_on(node):
                raise self._wrong(self.tree, node)
            if not isinstance(node, ast.AugAssign) or not self._is_count(node):
                continue
            name, above = ast.unparse(node.target), self.tree.parent(node)
            if name == self.counter.name or node in self.window.synced:
                continue
            if isinstance(above, ast.If):
                if above is not self.window.block[-1] and every(above.test) is None:
                    raise self._wrong(self.tree, node)
                continue
            plain = isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant)
            if above is not self.node or not plain:
                raise self._wrong(self.tree, node)
            if not begins_at_zero(self.facts, self.loop, name):
                raise WrongRead(f"`{name}` is not known to begin at 0")
            self.counters.append(Counter(name, False))
            if ast.unparse(node.value) != "1":
                site = self.tree.site(node.value)
                yield edit(self.facts, How.REPLACE, site, f"{{}} * {WORLD}")

    def _goes_on(self, node: ast.Assign) -> bool:
        """``n = n + 1``: a count that is not said as one, but for the window's own."""
        names = stored(node) - {self.counter.name}
        value = self.facts.values.get(self.tree.site(node.value), NOTHING)
        numbers = isinstance(node.value, ast.BinOp) and value.measure is Measure.UNIFORM
        read = {ast.unparse(n) for n in ast.walk(node.value) if isinstance(n, _READ)}
        return numbers and bool(names & read) and node not in self.window.synced

    def _is_count(self, node: ast.AugAssign) -> bool:
        """Whether what it adds, in which rounds, is the same on all ranks, and goes on."""
        tests = [a.test for a in self.tree.ancestors(node) if isinstance(a, ast.If)]
        sites = [self.tree.site(one) for one in (node.value, *tests)]
        inside = [site for site in sites if site.within(self.loop.batch.site)]
        told = (self.facts.values.get(site, NOTHING) for site in inside)
        name = ast.unparse(node.target)
        goes_on = isinstance(node.target, ast.Attribute) or name in self._carried
        return goes_on and all(value.measure is Measure.UNIFORM for value in told)

    @cached_property
    def _carried(self) -> set[str]:
        return carried.carried(self.node) if isinstance(self.node, ast.For) else set()

    def _body(self) -> list[ast.stmt]:
        return getattr(self.node, "body", [])

    def _later(self) -> list[ast.stmt]:
        """The statements that read the loop's own counter when it has ended."""
        name, tree = self.counter.name, self.tree
        if not isinstance(self.node, ast.stmt):
            return []
        reads = [
            node
            for node in tree.reads(tree.function(self.node), name)
            if tree.site(self.node) < tree.site(node)
            and not tree.site(node).within(tree.site(self.node))
            and not tree.is_of_own_loop(node, name, self.node)
        ]
        found = (tree.statement(tree.site(node)) for node in reads)
        return list(dict.fromkeys(one for one in found if one is not None))

    def _wrong(self, tree: Tree, node: ast.AST) -> WrongRead:
        site = tree.site(node)
        return WrongRead(f"`{self.facts.text(site)}` would be of fewer rounds ({site})")

    def _of_lengths(self) -> Iterator[Edit]:
        mine = set(self.loop.loaders)
        calls = (c for c in self.facts.calls if c.name == "builtins.len" and c.args)
        asked = [c for c in calls if mine & set(_behind(c))]
        for call in asked:
            if not set(call.args[0].of(Kind.LOADER)) <= mine:
                raise self._wrong(self.facts.tree(call.site), self._expression(call.site))
        for site in sorted({call.site for call in asked}):
            tree = self.facts.tree(site)
            node = tree.expression(site)
            test = _test(self.window.block[-1])
            own = self.counter.index and any(one is node for one in ast.walk(test))
            if node is None or own or self._is_of_bar(tree, node) or self._is_redrawn(tree, node):
                continue
            if isinstance(tree.parent(node), ast.Call) and not self._is_told(tree, node, None):
                raise self._wrong(tree, node)
            yield edit(self.facts, How.REPLACE, site, f"{{}} * {WORLD}")

    def _expression(self, site: Site) -> ast.AST:
        return self.facts.tree(site).expression(site) or self.node

    def _is_redrawn(self, tree: Tree, node: ast.AST) -> bool:
        """``bar.set_postfix(loss=total / (i + 1))`` in each round: of rank 0's rounds, as it is."""
        statement = tree.statement(tree.site(node))
        call = statement.value if isinstance(statement, ast.Expr) else None
        if statement is None or not isinstance(call, ast.Call):
            return False
        if tree.parent(statement) is not self.node:
            return False
        bars = (c.receiver for c in self.facts.calls if c.site == tree.site(call))
        return any(value is not None and value.of(Kind.PROGRESS) for value in bars)

    def _is_of_bar(self, tree: Tree, node: ast.AST) -> bool:
        """``tqdm(loader, total=len(loader))``"""
        bars = (a for a in tree.ancestors(node) if isinstance(a, ast.Call))
        values = (self.facts.values.get(tree.site(bar), NOTHING) for bar in bars)
        return any(value.of(Kind.PROGRESS) for value in values)

    def _is_told(self, tree: Tree, node: ast.AST, asked: Every | None) -> bool:
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
        steered = (one for one in self.facts.accesses if one.base.of(*_STEERS))
        if any(s.within(site) for one in steered for s in (*one.where.stack, one.where.statement)):
            return True
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
                if self._is_redrawn(tree, node):
                    continue
                if self._has_rounds(tree, node.right):
                    yield tree.site(node.right)
                elif not self._is_length_of(tree, node.right, Kind.DATASET):
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
        meters = {"sum", "count"} if any(end.keep for end in self._ends) else set()
        return dotted | meters | {name for end in self._ends for _, name in end.owned}

    def _has_rounds(self, tree: Tree, node: ast.expr) -> bool:
        own = tree is self.tree and any(one.names(node) for one in self.counters)
        return own or self._is_length_of(tree, node, Kind.LOADER, Kind.PROGRESS)

    def _is_length_of(self, tree: Tree, node: ast.expr, *kinds: Kind) -> bool:
        sites = {tree.site(one) for one in ast.walk(node) if isinstance(one, ast.Call)}
        lengths = (c for c in self.facts.calls if c.name == "builtins.len" and c.site in sites)
        return any(call.args and call.args[0].of(*kinds) for call in lengths)


def begins_at_zero(facts: Facts, loop: TrainingLoop, name: str) -> bool:
    """Whether what counts is 0 before the first round, or what a checkpoint says."""
    given = loop.batch.frame.parameters.get(name)
    value = facts.values.get(given, NOTHING) if given is not None else NOTHING
    if given is not None and value.known:
        return bool(value.const == 0)
    last = (facts.text(given) if given is not None else name).rpartition(".")[2]
    bound = [one for one in facts.binds if one.target.rpartition(".")[2] == last]
    return {one.value.const for one in bound if one.value.known} == {0}


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
