"""Where the batches of a loop can be divided once every rank has made them.

The last resort where they come from no loader: ``x, y = own_share(x, y)`` before the statement that
calls the model. What is divided are the tensors that each pass makes anew and that go into the
model or the loss; where anything else goes there that may be of samples, nothing is divided.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ddpify.facts import filled_inputs, roles, torchtext
from ddpify.facts.batch_fields import fields, sizes
from ddpify.facts.batch_names import BatchNames
from ddpify.facts.bodies import (
    CutBody,
    counts,
    loaded,
    stored,
    targets_of,
)
from ddpify.facts.carried import read_early, same_in_each_pass
from ddpify.facts.columns import Columns
from ddpify.facts.details import Divided
from ddpify.facts.draws import trains_on_draws
from ddpify.facts.events import Forward
from ddpify.facts.input_axes import asks_lengths, parallel_axes, said_axes, the_axis, unfollowed
from ddpify.facts.loss_flow import loss_names
from ddpify.facts.model import Division, TrainingLoop
from ddpify.facts.places import places, turns
from ddpify.facts.protocol import Machine
from ddpify.facts.rounds import differ, may_end_short
from ddpify.facts.states import States, states
from ddpify.facts.tree import Tree
from ddpify.facts.values import OF_ONE_RANK, Kind, Thing, Value
from ddpify.source import Site

Why = str
# Kinds of values that an argument may hold besides the batch: the same for every sample.
SETTINGS = (Kind.ARGUMENT, Kind.DEVICE, Kind.EXTERNAL, Kind.MODULE, Kind.FUNCTION, Kind.CLASS)


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
        if trains_on_draws(bare, loop, loops):
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
    flat: bool = False

    def division(self, asked: int | None) -> Division | Why:
        """Where and how its batches are divided, or why they are not."""
        node = self.tree.statement(self.training.batch.site)
        forwards = self._forwards()
        if not isinstance(node, (ast.For, ast.While)) or not forwards:
            return "its body calls no model that can be followed"
        if filled_inputs.unpacks(forwards):
            return filled_inputs.WHY
        tests = (guard.test for guard in self.training.batch.exits)
        over = self.training.batch.over, node.iter if isinstance(node, ast.For) else node.test
        if differ(self.m, *over, self._drawn) or any(map(self._drawn, tests)):
            return "how many batches there are differs between ranks"
        cut = self._cut(node, forwards)
        if cut is None:
            return "its body does not call both the model and backward()"
        for place in self._places(node, cut):
            made = self._divided_at(node, place, forwards, asked)
            if isinstance(made, Division):
                return made
        return self._by_columns(node, cut, forwards, asked) or made

    def _by_columns(
        self, node: ast.For | ast.While, cut: int, forwards: tuple[Forward, ...], asked: int | None
    ) -> Division | None:
        """How the data of all batches are divided, where a batch is flattened as it is taken."""
        made = replace(self, flat=True)._divided_at(node, cut, forwards, asked)
        if isinstance(made, str):
            return None
        split = CutBody(node.body[:cut], node.body[cut:], stored(targets_of(node)))
        given = {n for f in forwards for n in self._given(f)}
        data = Columns(self.m, self.tree, made.axis, given).made(split, made.names)
        if data is None:
            return None
        done = isinstance(data, ast.Call) and self._bound.called(data).endswith(".own_share")
        return replace(made, columns=self.tree.site(data), done=done, ragged=False)

    def _places(self, node: ast.For | ast.While, cut: int) -> Iterable[int]:
        """Where the batch may be divided: no later than right before the model is called."""
        targets = stored(targets_of(node))
        objects = {name for name in targets if self._is_object(name)}
        if not objects:
            return places(node.body, cut, targets, self._bound)
        return [n for n in range(cut + 1) if objects & set(loaded(node.body[n]))][:1] or [cut]

    def _is_object(self, name: str) -> bool:
        return torchtext.is_batch(self._batch(name))

    def _batch(self, name: str) -> Value | None:
        return self.training.batch.frame.lookup(name)

    def _divided_at(
        self, node: ast.For | ast.While, cut: int, forwards: tuple[Forward, ...], asked: int | None
    ) -> Division | Why:
        """How batches are divided before a statement of the body, or why they are not there."""
        split = CutBody(node.body[:cut], node.body[cut:], stored(targets_of(node)))
        carried = self._states(node, split, forwards)
        if isinstance(carried, str):
            return carried
        names = self._names(node, split, forwards, set(carried))
        if isinstance(names, str):
            return names
        objects = [name for name in names if self._is_object(name)]
        names = tuple(part for name in names for part in self._parts(name, split, forwards))
        said = {torchtext.axis_of(self._batch(name)) for name in objects}
        if not objects and not self._turns(forwards):
            known = {one.axis for one in carried.values()} | parallel_axes(self.first, forwards)
            said = said_axes(self.m, self.training, split, names, forwards, known)
        axis = the_axis(names, said | {asked}, bool(objects))
        usual = 1 if objects else 0  # what the user would be told to say
        tried = usual if isinstance(axis, str) else axis
        loop = self.training.batch.site
        lengths = objects and tried and asks_lengths(self.m, loop, forwards)
        if lengths or unfollowed(self.m, loop, tried, forwards):
            return f"what is computed along an axis is not followed where samples lie along {tried}"
        if isinstance(axis, str):
            return axis
        numbers = tuple(site for one in carried.values() for site in one.sizes)
        of_objects = (sizes(split.rest, name) for name in objects)
        numbers += tuple(self.tree.site(node) for found in of_objects for node in found)
        statement = self.tree.site(split.rest[0])
        ragged = may_end_short(self.m, self.training, split, names, axis)
        return Division(loop, statement, names, axis, numbers, ragged=ragged)

    def _turns(self, forwards: tuple[Forward, ...]) -> bool:
        """Whether a model is given ``x.t()``: its axes are not those of ``x``."""
        nodes = (self.tree.expression(f.call.site) for f in forwards)
        calls = (node for node in nodes if isinstance(node, ast.Call))
        return any(turns(given) for call in calls for given in (*call.args, *call.keywords))

    def _parts(self, name: str, split: CutBody, forwards: tuple[Forward, ...]) -> tuple[str, ...]:
        """What is divided of it: the tensor, or the fields of an object."""
        if not self._is_object(name):
            return (name,)
        return fields(self.m, split.rest, name, forwards) or ()

    @property
    def _bound(self) -> BatchNames:
        return BatchNames(self.m, self.training, self.flat)

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

    def _drawn(self, value: Value) -> tuple[Thing, ...]:
        """What makes a value another one on each rank: all draw alike until they train."""
        outer = self.training.batch
        while outer.parent is not None:
            outer = outer.parent
        begun = {c.site for c in roles.calls_of(self.m) if c.order >= outer.first}
        own = value.dep(*OF_ONE_RANK)
        return tuple(t for t in own if t.kind is not Kind.RANDOM or t.born in begun)

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
        loss = loss_names(self.m, self.training, split.rest)
        given = {n for f in forwards for n in self._given(f)}
        fixed = given - split.made - stored(split.rest)
        for name in sorted(fixed):
            if not self._is_setting(name):
                return f"`{name}`, which the model is given, is not made anew for each batch"
        wanted = [name for name in split.live if name in loss | given and name not in states]
        for name in list(wanted):
            if self._is_object(name):
                why = None if self._parts(name, split, forwards) else f"`{name}` is used as a whole"
            else:
                why = self._bound.why_not(name, node, split)
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
        alike = same_in_each_pass(self.m, self.tree, node)
        carried = read_early(node.body, split.targets, alike) & stored(node.body)
        found: dict[str, States] = {}
        for name in sorted(carried & (given | loss_names(self.m, self.training, split.rest))):
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
