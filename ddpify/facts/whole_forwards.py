"""Losses that a model's ``forward`` computes in steps: the whole of it is read, beside the record.

Whether a loss is a mean over the batch, or a sum, stands in everything that makes it, as in a
criterion that trains nothing. What layers do is taken for granted, as everywhere: a row for each
sample. Nothing that is read so is remembered, since the wrapper is what is called. ::

    def forward(self, features, labels):        # a criterion with parameters of its own
        away = features - self.centers[labels]
        return away.pow(2).sum() / features.size(0)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ddpify.facts.call_events import is_told
from ddpify.facts.coupling import certain
from ddpify.facts.details import OpenForward, call_that_made
from ddpify.facts.events import Call, Forward
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import computed, flat_measure, held, with_parts
from ddpify.facts.output_rows import OTHERWISE
from ddpify.facts.protocol import Machine
from ddpify.facts.record import Event
from ddpify.facts.recurrent import ATTENDS, RECURRENT
from ddpify.facts.roles import itself
from ddpify.facts.rows import by_torch
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import Kind, Measure, Thing, Value, one
from ddpify.facts.written_parts import fields_in, made_of, parts_in

LISTS = frozenset({"torch.nn.ModuleList"})
FLATTENS = frozenset({"torch.nn.Flatten", "torch.nn.Unflatten", "torch.nn.Module"})
UNREAD = Value(measure=Measure.SAMPLES)
Kinds = tuple[Measure, ...]
NUMBERS: Kinds = (Measure.MEAN, Measure.SUM)
UNFOLLOWED = (Kind.RATIO, Kind.COUPLED, Kind.AVERAGED, Kind.UNREAD)


def with_means(m: Machine, f: Frame, model: Thing, each: Value, known: Value, event: Call) -> Value:
    """The output of a model, ``each`` part of it, with the means among these as those.

    ``known`` is what single calls say of it, which is wrong where samples are compared before.
    """
    info = method_of(model, "forward")
    if info is None or not is_told(m, event):
        return known
    result = _read(m, model, info, event)
    if result is None:
        return each
    # Of batches that are filled up a sum has other terms; replicas' sums are averaged as they are.
    given = computed(*event.args, *event.kwargs.values())
    sums = by_torch(given) and not m.parallel
    return _with_means(result, known, NUMBERS if sums else NUMBERS[:1])


def result_of(m: Machine, forward: Forward) -> Value | None:
    """What a model is read to return of samples; ``UNREAD`` where it cannot be read.

    None where it compares samples, or keeps statistics of them.
    """
    call, info = forward.call, method_of(forward.model, "forward")
    if info is None or call.star or call.bound:
        return UNREAD
    given = tuple(_of_samples(value, forward) for value in call.args)
    named = {name: _of_samples(value, forward) for name, value in call.kwargs.items()}
    return _read(m, forward.model, info, replace(call, args=given, kwargs=named))


def _of_samples(value: Value, forward: Forward) -> Value:
    """A tensor as one of samples, whatever it was made of, that gradients go through."""
    if value.known or value.things:
        return value
    plain = value.measure not in (Measure.UNIFORM, Measure.SAMPLES)
    deps = value.deps | {forward.output}
    return value if plain else Value((), deps, Measure.SAMPLES, rows=True, axis=value.axis)


def _read(m: Machine, model: Thing, info: FunctionInfo, event: Call) -> Value | None:
    own, f = opened(model), event.where.frame
    with m.aside():
        result = m.enter(f, info, (one(own), *event.args), event.kwargs, event.site)
        if any(map(_fills, m.events)) or any(_carried(m, own)):
            return None  # statistics of a rank's own samples, for the steps to come
    fields = [part for thing in result.things for part in fields_in(thing).values()]
    return None if certain((*with_parts(result), *fields)) else result


def _with_means(result: Value, whole: Value, kinds: Kinds) -> Value:
    """``whole`` with the means, or sums, that were read: one, or some of a tuple or a dict."""
    made, found = whole.things, result.things
    if not found:
        return _mean(result, whole, kinds) or whole
    if len(found) == 1 and not made:
        return _as_read(found[0], whole, kinds, result.measure is Measure.UNIFORM)
    parts = parts_in(made[0]) if len(made) == 1 else {}
    read = [parts_in(thing) for thing in found]
    if any(parts.keys() - each.keys() for each in read):
        return whole
    means = {
        key: _mean_of_all([each[key] for each in read], part, kinds) for key, part in parts.items()
    }
    if not any(means.values()):
        return whole
    left = {key: means[key] or part for key, part in parts.items()}
    return whole.but(things=(made_of(made[0], left),))


def _as_read(thing: Thing, whole: Value, kinds: Kinds, sure: bool) -> Value:
    """What is read as a dict or an object, or if that is ``sure`` a tuple.

    Of a tensor ``[1]`` is a sample.
    """
    items, fields = thing.items if sure else None, fields_in(thing)
    parts = fields or thing.keys or dict(enumerate(items or ()))
    means = {key: _mean(part, whole, kinds) for key, part in parts.items()}
    named = items or all(isinstance(key, str) for key in parts)
    if not (fields or any(means.values())) or not named:
        return whole
    left = {key: means[key] or _unread(part, whole) for key, part in parts.items()}
    if fields:
        made = Thing(Kind.INSTANCE, thing.born, thing.name, ref=thing.ref)
        made.attrs = {str(key): value for key, value in left.items()}
        made.items = tuple(left.values()) if items else None
    elif items:
        made = Thing(Kind.TUPLE, thing.born, thing.name, items=tuple(left.values()))
    else:
        made = Thing(Kind.DICT, thing.born, keys=left)
    return whole.but(things=(made,), blocks=0)


def _unread(part: Value, whole: Value) -> Value:
    """What is no mean: of the samples, if anything is that one tensor may be."""
    if part.known:
        return part
    rows = part.measure in (Measure.SAMPLES, Measure.UNIFORM) and not part.things
    return whole if rows else whole.but(measure=Measure.MIXED)


def _mean_of_all(results: Iterable[Value], whole: Value, kinds: Kinds) -> Value | None:
    found = [_mean(result, whole, kinds) for result in results]
    alike = len({one.measure for one in found if one is not None}) == 1
    return found[0] if None not in found and alike else None


def _mean(result: Value, whole: Value, kinds: Kinds) -> Value | None:
    """The mean that is returned; None where it is none, or is made of what is not followed."""
    plain = result.measure in kinds and not result.things
    if not plain or result.axis or result.dep(*UNFOLLOWED):
        return None
    return Value((), whole.deps, result.measure)


def opened(model: Thing) -> Thing:
    """A module whose ``forward`` is read as the function it is; its layers are models."""
    inner = itself(model)
    made = Thing(Kind.CRITERION, inner.born, inner.name, ref=inner.ref)
    made.describe(OpenForward())
    made.attrs = {name: _loose(value) for name, value in inner.attrs.items()}
    return made


def _loose(value: Value) -> Value:
    """What a module keeps, but its layers as modules of their own."""
    if not value.of(Kind.MODEL):
        return value
    return value.but(things=tuple(map(_layer, value.things)))


def _layer(thing: Thing) -> Thing:
    """A layer that may be called; of those that put samples elsewhere nothing is known."""
    if thing.kind is not Kind.MODEL:
        return thing
    if thing.name in LISTS and not _holds_criteria(thing):
        return Thing(Kind.ITERATOR, thing.born, inner=one(Thing(Kind.MODEL, thing.born, "layer")))
    if thing.name in OTHERWISE - FLATTENS - RECURRENT - ATTENDS:
        return Thing(Kind.UNKNOWN, thing.born, thing.name)
    return replace(thing, part_of=None)


def _holds_criteria(layers: Thing) -> bool:
    made = call_that_made(layers)
    return made is None or any(held(value, Kind.CRITERION) for value in made.args)


def _carried(m: Machine, opened: Thing) -> Iterator[bool]:
    """``self.center = 0.9 * self.center + x.mean(0)``: of each attribute, whether it is such."""
    for name, value in opened.attrs.items():
        reads = (event for event in m.events.accesses(name) if not event.stored)
        yield _of_batch(value) and any(opened in event.base.things for event in reads)


def _of_batch(value: Value) -> bool:
    return flat_measure(value) is not Measure.UNIFORM or bool(value.dep(Kind.BATCH))


def _fills(event: Event) -> bool:
    """``self.center.mul_(0.9).add_(x.mean(0))``: what was not of the batch becomes so."""
    fills = isinstance(event, Call) and event.name[-1:] == "_" and event.receiver is not None
    if not fills or not isinstance(event, Call) or event.receiver is None:
        return False
    given = any(_of_batch(value) for value in (*event.args, *event.kwargs.values()))
    return given and not _of_batch(event.receiver)
