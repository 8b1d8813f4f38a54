"""Where the batches of a loop can be divided once every rank has made them.

The last resort where they come from no loader: ``x, y = own_share(x, y)`` before the statement that
calls the model. What is divided are the tensors that each pass makes anew and that go into the
model or the loss; where anything else goes there that may be of samples, nothing is divided.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.facts import roles
from ddpify.facts.bodies import (
    Block,
    CutBody,
    assigned,
    calls_along,
    counts,
    flows,
    is_taken_apart,
    loaded,
    merges_axes,
    stored,
    takes_or_shapes,
    targets_of,
)
from ddpify.facts.carried import read_early
from ddpify.facts.details import Divided
from ddpify.facts.effects import effect_of
from ddpify.facts.events import Call, Forward
from ddpify.facts.model import Division, TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.states import States, states
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, OF_ONE_RANK, Kind, Value
from ddpify.python import words
from ddpify.source import Site

Why = str
# What is no tensor, however it is used.
NUMBERS = frozenset(
    """builtins.len builtins.int builtins.float builtins.str builtins.bool builtins.range
    random.random random.randint random.uniform random.gauss .size .item""".split()
)
# Kinds of values that an argument may hold besides the batch: the same for every sample.
SETTINGS = (Kind.ARGUMENT, Kind.DEVICE, Kind.EXTERNAL, Kind.MODULE, Kind.FUNCTION, Kind.CLASS)
# With another axis than the first, what looks along axes is not followed.
ALONG = frozenset(
    """sum mean prod std var norm max min argmax argmin topk sort softmax log_softmax cumsum
    logsumexp split chunk unbind""".split()
)


def divisions(
    first: Machine, bare: Machine, asked: int | None
) -> tuple[tuple[Division, ...], tuple[tuple[Site, Why], ...]]:
    """What to divide in loops without a loader, and for the others why not.

    ``first`` reads the program as it stands, ``asked`` is the axis that the user has named.
    """
    found: dict[Site, Division] = {}
    refused: dict[Site, Why] = {}
    loops = roles.training_loops(roles.calls_of(bare))
    done = {t.born for t in bare.made(Kind.LOADER) if t.detail(Divided)}
    for loop in loops:
        if loop.loaders or any(site.within(loop.batch.site) for site in done):
            continue
        if any(other.loaders for other in loops):
            refused[loop.batch.site] = "another loop trains on a loader"
            continue
        made = _Loop(first, bare, loop).division(asked)
        if isinstance(made, Division) and found.setdefault(made.loop, made) != made:
            made = "its calls differ in what they divide"
        if isinstance(made, str):
            refused[loop.batch.site] = made
    kept = tuple(one for one in found.values() if one.loop not in refused)
    return kept, tuple(refused.items())


@dataclass(frozen=True)
class _Loop:
    """A loop that trains on batches of no known loader."""

    first: Machine
    m: Machine
    training: TrainingLoop

    def division(self, asked: int | None) -> Division | Why:
        """Where and how its batches are divided, or why they are not."""
        node = self.tree.statement(self.training.batch.site)
        forwards = self._forwards()
        if not isinstance(node, (ast.For, ast.While)) or not forwards:
            return "its body calls no model that can be followed"
        tests = (guard.test for guard in self.training.batch.exits)
        if any(self._differs(value) for value in (self.training.batch.over, *tests)):
            return "how many batches there are differs between ranks"
        cut = self._cut(node, forwards)
        if cut is None:
            return "its body does not call both the model and backward()"
        split = CutBody(node.body[:cut], node.body[cut:], stored(targets_of(node)))
        carried = self._states(node, split, forwards)
        if isinstance(carried, str):
            return carried
        names = self._names(node, split, forwards, set(carried))
        if isinstance(names, str):
            return names
        axes = self._axes(forwards) | {one.axis for one in carried.values()} | {asked}
        known = {one for one in axes if one is not None}
        if len(known) > 1:
            return "along which axis samples lie is said in different ways"
        axis = known.pop() if known else None
        if axis is None:
            said = " and ".join(f"`{name}`" for name in names)
            return f"nothing says along which axis {said} hold samples (--batch-dim 0 would)"
        if axis and calls_along(split.rest, ALONG):
            return f"what is computed along an axis is not followed where samples lie along {axis}"
        statement = self.tree.site(split.rest[0])
        sizes = tuple(site for one in carried.values() for site in one.sizes)
        return Division(self.training.batch.site, statement, names, axis, sizes)

    @property
    def tree(self) -> Tree:
        return self.m.tree(self.training.batch.site.path)

    def _forwards(self) -> tuple[Forward, ...]:
        calls = roles.calls_of(self.m)
        forwards = roles.forwards_of(self.m)
        outputs = roles.training_forwards(calls, forwards)
        loop = self.training.batch
        inside = [f for f in forwards if any(x.site == loop.site for x in f.call.where.loops())]
        trained = tuple(f for f in inside if f.output in outputs)
        sites = {f.call.site for f in trained}
        evaluates = any(f.call.where.no_grad for f in inside if f.call.site in sites)
        own = all(f.call.where.function is loop.function for f in trained)
        return trained if own and not evaluates else ()

    def _differs(self, value: Value) -> bool:
        """Whether a value may be another on each rank: all draw alike until they train."""
        outer = self.training.batch
        while outer.parent is not None:
            outer = outer.parent
        begun = {c.site for c in roles.calls_of(self.m) if c.order >= outer.first}
        own = value.dep(*OF_ONE_RANK)
        return any(t.kind is not Kind.RANDOM or t.born in begun for t in own)

    def _cut(self, node: ast.For | ast.While, forwards: tuple[Forward, ...]) -> int | None:
        """The first statement in which a model is called; the backward is no earlier."""
        for number, statement in enumerate(node.body):
            site = self.tree.site(statement)
            if any(f.call.site.within(site) for f in forwards):
                after = self.training.backward.where.statement
                inside = after.within(self.training.batch.site)
                return number if inside and site.span.line <= after.span.line else None
        return None

    def _names(
        self,
        node: ast.For | ast.While,
        split: CutBody,
        forwards: tuple[Forward, ...],
        states: set[str],
    ) -> tuple[str, ...] | Why:
        """The tensors of the batch: what is made anew in each pass, before the model is called,
        and goes into the model or the loss."""
        loss = self._loss_names(split.rest)
        given = {n for f in forwards for n in self._given(f)}
        fixed = given - split.made - stored(split.rest)
        for name in sorted(fixed):
            if not self._is_setting(name):
                return f"`{name}`, which the model is given, is not made anew for each batch"
        wanted = [name for name in split.live if name in loss | given and name not in states]
        for name in list(wanted):
            why = self._no_tensor(name, node, split)
            if why == "":
                wanted.remove(name)
            elif why is not None:
                return why
        return tuple(wanted) if wanted else "no tensor goes into the model that a pass has made"

    def _states(
        self, node: ast.For | ast.While, split: CutBody, forwards: tuple[Forward, ...]
    ) -> dict[str, States] | Why:
        """What goes from one batch to the next into the model or the loss."""
        given = {n for f in forwards for n in self._given(f)}
        carried = read_early(node.body, split.targets) & stored(node.body)
        found: dict[str, States] = {}
        for name in sorted(carried & (given | self._loss_names(split.rest))):
            if counts(node.body, name):
                continue
            one = states(self.m, self.training.batch.frame, node, name, forwards)
            if one is None:
                return f"`{name}` is carried over from one batch to the next"
            found[name] = one
        return found

    def _given(self, forward: Forward) -> set[str]:
        """The names in the arguments of a call of the model."""
        node = self.tree.expression(forward.call.site)
        given = (*node.args, *node.keywords) if isinstance(node, ast.Call) else ()
        return {n for argument in given for n in loaded(argument)}

    def _is_setting(self, name: str) -> bool:
        value = self.training.batch.frame.lookup(name)
        if value is None or value.known:
            return value is None or not isinstance(value.const, str)  # a builtin, a number
        return bool(value.things) and all(t.kind in SETTINGS for t in value.things)

    def _loss_names(self, rest: Block) -> set[str]:
        """What the loss is computed from in these statements, by names."""
        calls = roles.calls_of(self.m)
        shown = [c.site for c in calls if effect_of(c) and c.site.path == self.tree.source.path]
        silent = {n for site in shown if (n := self.tree.expression(site)) is not None}
        call = self.tree.expression(self.training.backward.site)
        found = set(loaded(call)) if call is not None else set()
        grown = -1
        while grown != len(found):
            grown = len(found)
            for targets, sources in flows(rest, silent):
                if targets & found:
                    found |= sources
        return found

    def _no_tensor(self, name: str, node: ast.For | ast.While, split: CutBody) -> Why | None:
        """Why a name cannot be divided, "" where it need not be, None where it can."""
        if self._numbers_passes(name, node, split) or self._is_number(name, split):
            indexing = takes_or_shapes(split.rest, name)
            return f"`{name}` is used after the model is called to take samples" if indexing else ""
        if is_taken_apart(split.rest, name) or self._is_display(name, split):
            return f"`{name}` is no tensor but holds several: unpack it before the model is called"
        makers = tuple(self._makers(name, node, split))
        if any(self._draws(part) for part in makers):
            return f"`{name}` is drawn by each rank"
        if self.tree.read_after(node, name):
            return f"`{name}` is read after the loop, whole"
        if any(merges_axes(part) for part in makers):
            return f"`{name}` has no axis of samples: it is flattened before the model is called"
        return None

    def _makers(self, name: str, node: ast.For | ast.While, split: CutBody) -> Iterator[ast.AST]:
        """The expressions that make a tensor, and the functions that they call."""
        made = [value for names, value in assigned(split.made_by) if name in names]
        made += [node.iter] if isinstance(node, ast.For) and name in split.targets else []
        yield from made
        sites = {self.tree.site(n) for v in made for n in ast.walk(v) if isinstance(n, ast.Call)}
        for call in roles.calls_of(self.m):
            if call.site in sites and call.target is not None:
                yield call.target.node

    def _numbers_passes(self, name: str, node: ast.For | ast.While, split: CutBody) -> bool:
        """``for i in range(…)``, ``for i, batch in enumerate(…)``."""
        if not isinstance(node, ast.For) or name in stored(split.made_by):
            return False
        if isinstance(node.target, ast.Name):
            return node.target.id == name and roles.counts(self.training.batch)
        first = node.target.elts[0] if isinstance(node.target, ast.Tuple) else None
        value = self.training.batch.frame.lookup(name) or NOTHING
        numbered = any(t.name == "enumerate" for t in value.of(Kind.INDEX))
        return isinstance(first, ast.Name) and first.id == name and numbered

    def _is_number(self, name: str, split: CutBody) -> bool:
        values = [value for names, value in assigned(split.made_by) if name in names]
        return bool(values) and all(self._gives_number(value) for value in values)

    def _is_display(self, name: str, split: CutBody) -> bool:
        displays = (ast.Tuple, ast.List, ast.Dict, ast.ListComp, ast.DictComp)
        alone = [value for names, value in assigned(split.made_by) if names == {name}]
        return any(isinstance(value, displays) for value in alone)

    def _gives_number(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.Constant) or ast.unparse(node) in ("[]", "{}")
        site = self.tree.site(node)
        return any(
            c.name in NUMBERS | words.CLOCKS for c in roles.calls_of(self.m) if c.site == site
        )

    def _draws(self, node: ast.AST) -> bool:
        site = self.tree.site(node) if isinstance(node, ast.Call) else None
        calls = roles.calls_of(self.m)
        drawn = tuple(start for start, library in words.DRAWS if library == words.NUMPY)
        return site is not None and any(c.site == site and c.name.startswith(drawn) for c in calls)

    def _axes(self, forwards: tuple[Forward, ...]) -> set[int | None]:
        """The axes along which DataParallel divides what these calls are given."""
        sites = {f.call.site for f in forwards}
        found = [f for f in roles.forwards_of(self.first) if f.call.site in sites]
        wrapped = {f.call.site for f in found if f.model.kind is Kind.WRAPPED}
        calls = [c for c in roles.calls_of(self.first) if c.name.endswith(".DataParallel")]
        return {_dim(call) for call in calls} if wrapped == sites else set()


def _dim(call: Call) -> int | None:
    given = call.arg(3, "dim")
    if given is None:
        return 0
    return given.const if given.known and isinstance(given.const, int) else None
