"""Whether each rank may be given whole batches and compute its rows of them.

The last resort of a program: all ranks make the same batches, and the same of what their models
give for them, as the one process of `nn.DataParallel` did. Nothing but the models' `forward` is
divided then, so that no loss, number or decision has to be followed. What has to be known is that a
`forward` makes each sample's output of that sample, and that nothing of its inside is looked at
elsewhere. Where an output has its samples `split_batches` tries out, unless a `forward` draws. ::

    net = split_batches(wrap_model(net))   # net(x) is of all samples, on each rank
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from ddpify.facts import library_losses, roles, whole_forwards, within
from ddpify.facts.batch_forwards import comparing
from ddpify.facts.bodies import loaded, stored
from ddpify.facts.carrying import carried
from ddpify.facts.details import OpenLoss
from ddpify.facts.drawing_models import draws
from ddpify.facts.events import Call, Forward
from ddpify.facts.filled_inputs import pads
from ddpify.facts.inner_means import gives_number
from ddpify.facts.input_axes import parallel_axes
from ddpify.facts.joining import parts_of, with_parts
from ddpify.facts.layer_axes import DEPTH, taken
from ddpify.facts.model import Model
from ddpify.facts.norms import built, by_class
from ddpify.facts.output_gradients import goes_to_outputs
from ddpify.facts.output_rows import all_rows
from ddpify.facts.protocol import Machine
from ddpify.facts.recurrent import RECURRENT, axis_of
from ddpify.facts.reordering import reorders
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.sized import sized, whole_shapes
from ddpify.facts.states import mixed
from ddpify.facts.values import UNKNOWN_AXIS, Kind, Measure, Thing, Value
from ddpify.source import Site

Why = tuple[Site, str]
# What is the same for all samples, and no tensor.
SETTINGS = (Kind.ARGUMENT, Kind.DEVICE, Kind.EXTERNAL, Kind.MODULE, Kind.FUNCTION, Kind.CLASS)
ENVIRONMENTS = ("gym.make", "gym.vector.make", "gymnasium.make", "gymnasium.make_vec", "retro.make")
NO_ROWS = (Measure.MEAN, Measure.SUM, Measure.RATIO, Measure.COUNT)


def why_whole(
    first: Machine,
    m: Machine,
    models: tuple[Model, ...],
    by_rows: frozenset[Site],
    sizes: frozenset[Site],
) -> Why | None:
    """Why ranks cannot compute the rows of whole batches; None where they can.

    ``first`` reads the program as it stands, ``m`` as it would be; ``by_rows`` are loops whose
    batches have their samples along the first axis, ``sizes`` are where a shape is kept that is
    that of a batch.
    """
    if not models:
        return None  # there is nothing to wrap: others say so
    return next(_Program(first, m, models, by_rows, sizes).reasons(), None)


@dataclass(frozen=True)
class _Program:
    first: Machine
    m: Machine
    models: tuple[Model, ...]
    by_rows: frozenset[Site]
    sizes: frozenset[Site]

    def reasons(self) -> Iterator[Why]:
        calls = roles.calls_of(self.m)
        outputs = roles.training_forwards(calls, roles.forwards_of(self.m))
        trained = [f for f in roles.forwards_of(self.m) if f.output in outputs]
        for model in self.models:
            if model.home is None and not model.wrapped:
                yield model.things[0].born, "the model has no name to wrap it by"
        divided = [f for f in trained if f.model.kind is Kind.WRAPPED]
        if not divided:
            yield self.models[0].things[0].born, "no call of a wrapped model trains"
        number, order = any(map(gives_number, self._classes)), any(map(reorders, self._classes))
        for forward in divided:
            yield from self._of_forward(forward)
            if number:
                yield forward.call.site, "the model gives a number for all samples"
            if order:
                yield forward.call.site, "the model gives its samples in another order"
        if parallel_axes(self.first, divided) != {0}:  # nn.DataParallel divides the same
            for site in comparing(self.m, divided):
                yield site, "the model compares samples, or decides by all of them"
        yield from self._inside()
        yield from self._beside(calls)
        yield from self._looked_at()

    def _beside(self, calls: tuple[Call, ...]) -> Iterator[Why]:
        """What makes batches of a rank's own, and what looks into models."""
        for call in calls:
            if call.name in ENVIRONMENTS:
                yield call.site, "an environment draws random numbers of its own"
            if call.name == "torch.autograd.grad" and goes_to_outputs(self.m, call):
                yield call.site, "an output of the model is differentiated by another"
        accesses = (access for name in within.HOOKS for access in self.m.events.accesses(name))
        looking = within.looking(calls)
        for access in accesses:
            if access.base_site not in looking and not _is_removed(access.where.frame):
                yield access.base_site, "a hook looks into a forward"

    def _of_forward(self, forward: Forward) -> Iterator[Why]:
        """What one call of a model is given, and gives."""
        call = forward.call
        result = whole_forwards.result_of(self.m, forward)
        found = list(with_parts(result)) if result is not None else []
        parallel = parallel_axes(self.first, [forward]) == {0}
        if any(self._is_number(forward, v, parallel) for v in (*found, *with_parts(call.result))):
            yield call.site, "the model gives a number for all samples"
        tried = not self._draws  # where outputs have samples: at first
        several = bool(result is not None and result.things) and not tried
        if several and self._turns:
            yield call.site, "whether each output has a row for each sample is not known"
        if parallel:
            return  # nn.DataParallel divides the same
        if call.star or call.bound:
            yield call.site, "what the model is given is not followed"
        elif not self._is_given_rows(forward):
            yield call.site, "along which axis the model takes samples is not known"
        if result is None:
            yield call.site, "the model compares samples, or keeps something of them"
        elif any(value.axis if not tried else value.axis == UNKNOWN_AXIS for value in found):
            yield call.site, "the model moves the axis of samples"
        elif several and self._gives_states() and not all_rows(forward.model, len(call.args)):
            yield call.site, "whether each output has a row for each sample is not known"

    def _is_given_rows(self, forward: Forward) -> bool:
        """Whether tensors are of samples along the first axis, as far as anything says so.

        `split_batches` holds the outputs of some rows against those of all when it is first called.
        """
        call = forward.call
        if any(loop.site in self.by_rows for loop in call.where.loops()):
            return True
        values = [*call.args, *call.kwargs.values()]
        by_layers = [taken(forward.model, {n}, DEPTH) for n in range(len(call.args))]
        axes = {axis for found in by_layers for axis in found}
        if axes - {0}:
            return False
        left = [
            v for v, found in zip_longest(values, by_layers) if not found and not _is_setting(v)
        ]
        if all_rows(forward.model, len(values)) or (axes and all(map(_is_of_batch, left))):
            return True
        parts = [part for value in values for part in _parts(value) if not _is_setting(part)]
        own = [part for part in parts if _is_of_batch(part)]
        loops = {loop.site for loop in call.where.loops()}
        training = roles.training_loops(roles.calls_of(self.m))
        if not any(loop.loaders and loop.batch.site in loops for loop in training):
            return False
        own = parts if self._are_made_anew(forward) else own
        moved = any(part.axis for part in parts) or 1 in self._recurrent_axes()
        return len(own) in (0, len(parts)) and not moved

    def _are_made_anew(self, forward: Forward) -> bool:
        """Whether a pass makes all that the model is given: noise, labels, no adjacency."""
        site, loop = forward.call.site, forward.call.where.loop
        tree = self.m.tree(site.path)
        node, call = tree.statement(loop.site) if loop else None, tree.expression(site)
        given = (*call.args, *call.keywords) if isinstance(call, ast.Call) else ()
        made = stored([node]) if isinstance(node, ast.For | ast.While) else set()
        return bool(given) and {name for one in given for name in loaded(one)} <= made

    def _is_number(self, forward: Forward, value: Value, parallel: bool) -> bool:
        """A loss, or what may be one."""
        if library_losses.makes_number(forward.model, forward.call):
            return True
        open_loss = value.measure is Measure.MIXED and forward.output.detail(OpenLoss)
        return bool(open_loss and not parallel) or value.measure in NO_ROWS

    def _gives_states(self) -> bool:
        """Whether a method returns the state of a recurrent layer, which has layers first."""
        layers = {c.site for c in roles.calls_of(self.m) if c.name in RECURRENT}
        return any(_gives_state(self.m, info, layers) for info in self._classes)

    def _recurrent_axes(self) -> set[int | None]:
        calls = (c for c in roles.calls_of(self.m) if c.name in RECURRENT)
        return {axis_of(thing) for call in calls for thing in call.result.things}

    def _inside(self) -> Iterator[Why]:
        """The size of a batch as a number inside of a model, and what is as long as its rows."""
        for info, model in self._classes.items():
            for site in mixed(info, model):
                yield site, "a row of a state that is reshaped here is of several samples"
            for site in carried(info):
                yield site, "the model keeps this of a batch for later ones"
            for node in ast.walk(info.node):
                if isinstance(node, ast.Call) and pads(node):
                    yield info.module.source.site(node), "a rank would pad to its own longest row"
        for site in sorted(sized(self.m) | whole_shapes(self.m) | self.sizes):
            if any(site.within(info.site) for info in self._classes):
                yield site, "the size of the whole batch is a number inside of the model"

    def _looked_at(self) -> Iterator[Why]:
        """What a forward keeps and others look at, or others keep and it looks at."""
        classes = self._classes
        kept = {n for info in classes for n in _stores(info)}
        read = {n for info in classes for n in _loads(info)}
        for name in sorted(kept | read):
            for access in self.m.events.accesses(name):
                if _is_of_module(access.where.function) or not access.base.of(
                    Kind.MODEL, Kind.WRAPPED
                ):
                    continue
                if name in (read if access.stored else kept) and access.where.loops():
                    yield access.base_site, f"`{name}` of the model is of a rank's own rows"
        for call in roles.calls_of(self.m):
            if call.where.loops() and kept & _outside(call, classes):
                name = min(kept & _outside(call, classes))
                yield call.site, f"`{name}` of the model is of a rank's own rows"

    @cached_property
    def _draws(self) -> bool:
        return any(map(draws, self._classes))

    @cached_property
    def _turns(self) -> bool:
        return any(_turns(node) for info in self._classes for node in ast.walk(info.node))

    @cached_property
    def _classes(self) -> dict[ClassInfo, Thing]:
        made = by_class(roles.calls_of(self.m))
        found: dict[ClassInfo, Thing] = {}
        for thing in (thing for one in self.models for thing in one.things):
            found |= built(thing, made)
        return found


def _is_of_module(function: FunctionInfo | None) -> bool:
    """Whether code is a method of a module: what it looks at is of the same rows."""
    bases = function.owner.external_bases() if function and function.owner else ()
    return any(base.startswith("torch.nn.") for base in bases)


def _parts(value: Value) -> tuple[Value, ...]:
    found = tuple(part for thing in value.things for part in parts_of(thing))
    return found or (value,)


def _gives_state(m: Machine, info: ClassInfo, layers: set[Site]) -> bool:
    tree = m.tree(info.module.source.path)
    assigned = [n for n in ast.walk(info.node) if isinstance(n, ast.Assign)]
    names = {ast.unparse(n.targets[0]) for n in assigned if tree.site(n.value) in layers}
    states = {
        name
        for n in assigned
        if isinstance(n.value, ast.Call) and ast.unparse(n.value.func) in names
        for name in _last(n)
    }
    returned = (n for n in ast.walk(info.node) if isinstance(n, ast.Return))
    return any(states & set(loaded(n)) for n in returned)


def _last(node: ast.Assign) -> set[str]:
    """``out, state = self.gru(x)``, ``out, (h, c) = self.lstm(x)``: the names of the state."""
    target = node.targets[0]
    several = isinstance(target, ast.Tuple) and len(target.elts) > 1
    return stored([target.elts[-1] if several else target])  # type: ignore[attr-defined]


def _turns(node: ast.AST) -> bool:
    """``x.permute(2, 0, 1, 3)``: something else than samples lies along the first axis."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    axes = [one.value for one in node.args if isinstance(one, ast.Constant)]
    first = node.func.attr == "permute" and axes[:1] not in ([0], [])
    return first or (node.func.attr == "transpose" and 0 in axes)


def _is_of_batch(value: Value) -> bool:
    return bool(value.dep(Kind.BATCH, Kind.FORWARD))


def _is_setting(value: Value) -> bool:
    """What is the same for all samples, and no tensor."""
    if value.known or value.dep(Kind.BATCH, Kind.FORWARD):
        return value.known
    counts = bool(value.dep(Kind.INDEX)) and not value.things
    return counts or (bool(value.things) and all(t.kind in SETTINGS for t in value.things))


def _is_removed(frame: Frame | None) -> bool:
    """Whether a function takes its hooks away again, as those that print a summary do."""
    while frame is not None:
        found = ast.walk(frame.function.node) if frame.function is not None else ()
        if any(isinstance(n, ast.Attribute) and n.attr == "remove" for n in found):
            return True
        frame = frame.caller
    return False


def _methods(info: ClassInfo) -> Iterator[ast.FunctionDef]:
    yield from (n for n in info.node.body if isinstance(n, ast.FunctionDef))


def _stores(info: ClassInfo) -> set[str]:
    """What a forward, or what it calls, keeps on the model: not what it is made with."""
    methods = {one.name: one for one in _methods(info)}
    names, todo = set[str](), ["forward"]
    while todo:
        method = methods.pop(todo.pop(), None)
        found = list(_own(method)) if method is not None else []
        names |= {n.attr for n in found if isinstance(n.ctx, ast.Store)}
        todo += [n.attr for n in found if n.attr in methods]
    return names


def _loads(info: ClassInfo) -> set[str]:
    methods = (one for one in _methods(info) if one.name == "forward")
    return {n.attr for one in methods for n in _own(one) if isinstance(n.ctx, ast.Load)}


def _outside(call: Call, classes: Collection[ClassInfo]) -> set[str]:
    """What a method of a model looks at that is called by others, and is no forward."""
    target = call.target
    if target is None or target.owner not in classes or _is_of_module(call.where.function):
        return set()
    return set() if target.name in ("forward", "__init__") else {n.attr for n in _own(target.node)}


def _own(node: ast.AST) -> Iterator[ast.Attribute]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
            yield each
