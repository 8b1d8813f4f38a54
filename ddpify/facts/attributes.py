"""Attributes: what an object holds under a name, or makes up when it is asked."""

from __future__ import annotations

import ast
from typing import cast

from ddpify.facts import (
    batch_axis,
    batch_objects,
    by_sample,
    counts,
    library_losses,
    lookups,
    measures,
    own_optimizers,
    special,
    through,
    unread,
    wrapping,
)
from ddpify.facts.details import AnyAttribute, SharesBatches, is_of_one, loader_arguments
from ddpify.facts.events import Access
from ddpify.facts.gradients import without_graph
from ddpify.facts.joining import computed, flat_deps, join
from ddpify.facts.library_classes import makes_its_own
from ddpify.facts.locality import is_shared_out
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.values import NO_CONST, NOTHING, Kind, Measure, Thing, Value, constant, one

STEPS = (Kind.OPTIMIZER, Kind.SCHEDULER, Kind.SCALER)

_NAMES = ("__name__", "__qualname__")  # texts, whatever they are of


def attribute_node(m: Machine, f: Frame, node: ast.Attribute) -> Value:
    base = m.evaluate(f, node.value)
    m.record(Access(m.tick(), base, m.site(f, node.value), node.attr, m.where(f)))
    known = base.measure in measures.ENTRIES and not base.things and base.axis == 0
    if node.attr == "shape" and is_of_one(base):
        return counts.size(m, f, base, m.site(f, node))
    if node.attr == "shape" and known:
        return counts.shape(m, f, base, m.site(f, node))
    return unread.told_again(base, attribute(m, f, base, node.attr, node))


def attribute(m: Machine, f: Frame, base: Value, name: str, node: ast.AST) -> Value:
    """``base.name``: heap attributes, methods, modules' globals, external names."""
    if m.target.shards and name == "shape" and not base.dep(Kind.BATCH, Kind.FORWARD):
        return NOTHING  # of a shard, too, it is that of the whole weight
    if name == "_orig_mod" and base.of(Kind.MODEL, *([Kind.WRAPPED] if m.target.shards else [])):
        return base  # what torch.compile gives is the model itself here
    if not base.things:
        return _plain_attribute(base, name)
    things = lookups.holding(base, name)
    return join(*[_thing_attribute(m, f, base, thing, name, node) for thing in things])


def _plain_attribute(base: Value, name: str) -> Value:
    if name == "shape":
        return base.but(const=NO_CONST)
    if name in measures.TRAITS or name in _NAMES:
        return NOTHING
    keep = name in measures.KEEPS_ANY or name in ("T", "mT")
    plain = computed(base, measure=base.measure if keep else None)
    if name == "data":
        return without_graph(plain).but(rows=base.rows, blocks=base.blocks)
    return batch_axis.moved(name, None, 0, base, plain)


def _thing_attribute(
    m: Machine, f: Frame, base: Value, thing: Thing, name: str, node: ast.AST
) -> Value:
    if thing.kind is Kind.ARGUMENT:
        m.summaries.looked_up(thing.attrs, name)
    if name in thing.attrs:
        return thing.attrs[name]
    part = library_losses.entry(m, f, thing, name, node) or by_sample.field(thing, name)
    part = part or batch_objects.field(m, f, thing, name) or through.criteria(thing, name)
    if part is not None:
        return part
    if thing.kind is Kind.MODULE:
        return m.module_attribute(thing, name)
    if thing.kind is Kind.EXTERNAL:
        return one(m.external(f"{thing.name}.{name}", m.site(f, node)))
    if isinstance(thing.ref, ClassInfo):
        known = name == "step" and own_optimizers.steps_as_torch(thing, m.modules.values())
        found = thing.ref.lookup(name) if not known else None
        if found is not None:
            return m.bind_method(thing, found, m.site(f, node))
    return _named_attribute(m, f, thing, name, node) or _known_attribute(
        m, f, base, thing, name, node
    )


def _named_attribute(m: Machine, f: Frame, thing: Thing, name: str, node: ast.AST) -> Value | None:
    """What every object of a class has, or is made up when it is asked for."""
    if name == "__name__" and isinstance(thing.ref, (ClassInfo, FunctionInfo)):
        return constant(thing.ref.name)
    if name in _NAMES and thing.kind is Kind.UNKNOWN:
        return NOTHING
    if thing.kind not in (Kind.INSTANCE, Kind.MODEL) or not isinstance(thing.ref, ClassInfo):
        return None
    if name == "__class__":
        return one(thing.ref.thing) if thing.ref.thing is not None else None
    if thing.kind is Kind.MODEL or name.startswith("__"):
        return None
    made = special.special(m, f, thing, "__getattr__", (constant(name),), m.site(f, node))
    if made is not None:
        return made
    stored = thing.detail(AnyAttribute)
    return stored.value if stored is not None else None


def _known_attribute(
    m: Machine, f: Frame, base: Value, thing: Thing, name: str, node: ast.AST
) -> Value:
    if name == "__dict__" and thing.kind is Kind.INSTANCE:
        return one(Thing(Kind.DICT, thing.born, keys=cast("dict[object, Value]", thing.attrs)))
    if thing.kind is Kind.WRAPPED and name == "module" and thing.inner is not None:
        return wrapping.unwrapped(m, one(thing))
    if thing.kind is Kind.LOADER and name == "dataset":
        return loader_arguments(thing).dataset or NOTHING
    if thing.kind is Kind.LOADER and name == "batch_size" and _says_share(m, thing):
        return _share_of_batch(m, f, thing)
    if thing.kind is Kind.LOADER and name in ("sampler", "batch_sampler"):
        given = loader_arguments(thing)
        sampler = given.sampler if name == "sampler" else given.batch_sampler
        return sampler or one(Thing(Kind.SAMPLER, thing.born, inner=one(thing)))
    if thing.kind is Kind.ARGUMENT and thing.name == "":
        return thing.attrs.setdefault(name, one(Thing(Kind.ARGUMENT, m.site(f, node), name)))
    own = _steps_itself(thing, name)
    if own is not None:
        return own
    if thing.kind in (Kind.MODEL, Kind.WRAPPED):
        child = Thing(Kind.UNKNOWN, thing.born, f"{thing.name}.{name}", part_of=thing)
        thing.attrs[name] = Value((child,), frozenset({thing}))
        return thing.attrs[name]
    if thing.kind is Kind.FORWARD or thing.kind is Kind.BATCH:
        return _plain_attribute(base, name)
    return Value((), flat_deps(one(thing)) | base.deps, _attribute_measure(base, name))


def _says_share(m: Machine, loader: Thing) -> bool:
    """Whether its batch size is a share: not where only its batches are, nor in evaluation."""
    of_all = makes_its_own(loader) or loader.detail(SharesBatches) is not None
    return loader.born in m.target.trained and is_shared_out(m, loader) and not of_all


def _share_of_batch(m: Machine, f: Frame, loader: Thing) -> Value:
    """How many samples a rank's batches have: as many as `x.size(0)` says."""
    batch = m.make(Kind.BATCH, f, loader.born, f"{loader.serial}")
    batch.inner = one(loader)
    return Value((), frozenset({batch}), Measure.COUNT, rows=True)


def _steps_itself(wrapper: Thing, name: str) -> Value | None:
    """The optimizer that a model keeps of itself: it is asked of the model inside (DDP303)."""
    inner = wrapper.stands_for if wrapper.kind is Kind.WRAPPED else ()
    kept = [thing.attrs[name] for thing in inner if name in thing.attrs]
    found = [thing.kind for value in kept for thing in value.things]
    return join(*kept) if found and all(kind in STEPS for kind in found) else None


def _attribute_measure(base: Value, name: str) -> Measure:
    if base.measure is Measure.UNIFORM or name in measures.TRAITS:
        return Measure.UNIFORM
    return base.measure if name in ("data", "T", "shape") else Measure.MIXED
