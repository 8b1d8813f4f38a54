"""Methods on values that are not of the project: what `.to`, `.item`, `.parameters` give."""

from __future__ import annotations

import ast

from ddpify.facts import (
    axis_counts,
    batch_axis,
    by_sample,
    containers,
    counts,
    fields,
    matrices,
    measures,
    own_gradients,
    own_optimizers,
    rows,
    tables,
    tensor_calls,
    through,
    within,
)
from ddpify.facts.conditions import conditioned
from ddpify.facts.details import Bypass, MakingCall, Optimized, is_of_one
from ddpify.facts.effects import opens_path
from ddpify.facts.events import Call
from ddpify.facts.fresh import able, makes_anew
from ddpify.facts.gradients import DETACHES, with_graph, without_graph
from ddpify.facts.joining import computed, flat_deps, flat_measure, join, told
from ddpify.facts.open_losses import is_layer
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, functions_in
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value, one
from ddpify.python.words import PATH_TESTS, RETURNS_SELF

PARAMETERS = frozenset(
    "parameters named_parameters buffers children named_children modules named_modules".split()
)
_OF_SHAPES = frozenset("numel nelement dim ndimension size stride element_size".split())
NEXT = frozenset({"next", "__next__"})  # `batches.next()`, as `next(batches)` was before Python 3
OF_DISTRIBUTIONS = frozenset({"log_prob", "rsample", "sample", "entropy"})
MODULES = (Kind.MODEL, Kind.WRAPPED, Kind.CRITERION)


def call_method(m: Machine, f: Frame, receiver: Value, name: str, call: Call) -> Value:
    """The result of ``receiver.name(...)``."""
    if opens_path(call):
        return one(m.make(Kind.FILE, f, call.site, "open"))
    if m.target.shards and name in _OF_SHAPES and not receiver.dep(Kind.BATCH, Kind.FORWARD):
        return NOTHING  # of a shard, too, it is that of the whole weight
    if m.target.shards and name == "keys" and receiver.dep(Kind.PARAMETERS):
        return NOTHING  # names
    value = _method(m, f, receiver, by_sample.of_part(m, name, call), call)
    if opens_path(call):
        return one(m.make(Kind.FILE, f, call.site, name))
    if name in PATH_TESTS:  # of a path, as no tensor and no container has such a method
        return value.but(deps=value.deps | {m.make(Kind.FILES, f, call.site, name)})
    return value


def _method(m: Machine, f: Frame, receiver: Value, name: str, call: Call) -> Value:
    results = [_on_thing(m, f, thing, name, call) for thing in able(receiver, name)]
    found = [r for r in results if r is not None]
    if found:
        made, moved = join(*found), name in RETURNS_SELF and receiver.measure is not Measure.UNIFORM
        # `torch.Tensor(made_of_a_batch).to(device)` is of that batch still.
        deps = made.deps | receiver.deps
        return made.but(deps=deps, measure=receiver.measure) if moved else made
    own_optimizers.by_call(m, f, receiver, call)
    plain = counts.kept(m, f, receiver, name, call) or _on_tensor(m, f, receiver, name, call)
    plain = without_graph(plain) if name in DETACHES else plain
    return batch_axis.moved(name, call, 0, receiver, rows.method(receiver, name, call, plain))


def _on_thing(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    if name in ("parameters", "named_parameters") and thing.kind is Kind.UNKNOWN:
        _promote(thing)
    if thing.kind in MODULES or thing.kind is Kind.UNKNOWN:
        return _on_module(m, f, thing, name, call)
    if thing.keys is not None and thing.kind in (Kind.DICT, Kind.INSTANCE):
        return _on_dict(m, f, thing, name, call)
    if thing.kind is Kind.BATCH and name in ("items", "values", "get", "pop"):
        return _on_batch(thing, name, call)
    if name in NEXT and thing.kind is Kind.ITERATOR and not call.args:
        return m.element_of(f, one(thing))
    if thing.kind in containers.LISTS:
        found = _on_list(m, f, thing, name, call)
        if found is not None:
            return found
    return _on_other(m, f, thing, name, call)


def _on_other(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    if name == "_replace" and thing.kind is Kind.INSTANCE:
        return fields.changed(thing, call.kwargs, call.site)
    if name == "apply" and isinstance(thing.ref, ClassInfo) and thing.kind is Kind.CLASS:
        return own_gradients.applied(m, f, thing.ref, call)
    if name == "parse_args" or name == "parse_known_args":
        return _arguments(m, f, name, call)
    if name == "state_dict":
        return one(m.make(Kind.STATE, f, call.site, str(thing.serial)), {thing})
    if thing.kind is Kind.OPTIMIZER and name == "step":
        return _closure(m, f, call)
    if thing.kind is Kind.SCALER and name in ("scale", "unscale_") and call.args:
        return computed(*call.args, measure=call.args[0].measure)
    if thing.kind is Kind.SAMPLER or thing.kind is Kind.LOADER:
        return Value((), frozenset({thing}))
    return None


def _on_list(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    if name in containers.GROWS:
        added = call.args[-1] if call.args else NOTHING
        more = m.element_of(f, added) if name.startswith("extend") else added
        value = conditioned(more, f.guards)
        args = (*call.args[:-1], value) if not name.startswith("extend") else call.args
        containers.grow(f, thing, name, args, value)
        return NOTHING
    if name in containers.TAKES and not call.kwargs:
        return containers.take(f, thing, name, call.args)
    if name in containers.COPIES:
        return containers.copied(thing, name, call.args, call.site)
    if name == "clear" and containers.certain(f):
        thing.items, thing.inner = (), None
        return NOTHING
    return None


def _closure(m: Machine, f: Frame, call: Call) -> Value:
    """``optimizer.step(closure)`` calls the closure."""
    given = (info for value in call.args for info in functions_in(value))
    return join(*[m.enter(f, info, (), {}, call.site) for info in given])


def _promote(thing: Thing) -> None:
    """Whoever has parameters is a module; a part of a model stays a part of it."""
    if thing.part_of is None:
        thing.kind = Kind.MODEL


def _on_module(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    if name == "apply" and thing.kind in MODULES:
        for function in call.args[:1]:
            part = Thing(Kind.UNKNOWN, call.site, f"{thing.name}.apply", part_of=thing)
            m.apply(f, function, (one(part),), call.site)
    within.registered(m, f, thing, call)
    if name in RETURNS_SELF:
        return one(thing)
    if name == "enter_context" and call.args:
        return m.entered(f, call.args[0])
    if name in PARAMETERS:
        made = m.make(Kind.PARAMETERS, f, call.site, str(thing.serial))
        made.inner = one(thing.part_of if thing.part_of is not None else thing)
        return one(made)
    if name == "state_dict":
        state = m.make(Kind.STATE, f, call.site, str(thing.serial))
        state.inner = one(thing)
        return one(state, {thing})
    if name == "from_pretrained":
        return one(m.make(Kind.MODEL, f, call.site, name))
    if thing.kind in MODULES:
        known = _optimizer(m, f, thing, name, call) or through.entered(m, f, thing, name, call)
        return known or _bypass(m, f, thing, name, call)
    if name == "zero_grad":
        _promote_to_optimizer(thing)
    return None


def _promote_to_optimizer(thing: Thing) -> None:
    """Whoever was made from parameters and sets gradients to zero is an optimizer."""
    made = thing.detail(MakingCall)
    if made is not None and any(d.kind is Kind.PARAMETERS for d in made.deps):
        thing.kind = Kind.OPTIMIZER
        thing.describe(Optimized(Value((), made.deps)))


def _optimizer(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    """What the inner module's ``configure_optimizers()`` gives; None for any other method."""
    for inner in thing.stands_for if thing.kind is Kind.WRAPPED else ():
        found = inner.ref.lookup(name) if isinstance(inner.ref, ClassInfo) else None
        for info in functions_in(found):
            if "optim" in ast.unparse(info.node):
                args = (one(inner), *call.args)
                made = m.enter(f, info, args, call.kwargs, call.site)
                return made if made.of(Kind.OPTIMIZER) else None
    return None


def _bypass(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value:
    """A method or part of a model is called: a forward that the wrapper does not see."""
    made = m.make(Kind.UNKNOWN, f, call.site, f"{thing.name}.{name}()")
    made.part_of = thing
    if makes_anew(thing, name):
        return Value((), frozenset({thing}))
    output = m.make(Kind.FORWARD, f, call.site, f"bypass {thing.serial}")
    output.describe(Bypass(call))
    values = (*call.args, *call.kwargs.values())
    mixed = computed(*values) if values else NOTHING
    whole = {flat_measure(v) for v in values} - {Measure.UNIFORM} == {Measure.SAMPLES}
    whole = whole and f.no_grad and is_layer(thing, name)  # else a loss may go through it
    measure = Measure.SAMPLES if whole else mixed.measure
    deps = mixed.deps | {thing, *with_graph(m, call, output)}
    return Value((made,), deps, measure, axis=mixed.axis)


def _on_dict(m: Machine, f: Frame, thing: Thing, name: str, call: Call) -> Value | None:
    assert thing.keys is not None
    if name == "update":
        containers.update(thing.keys, call.args, call.kwargs)
        return NOTHING
    if name in ("get", "pop", "setdefault") and call.args:
        return _entry(thing, name, call)
    if name == "copy":
        return one(Thing(Kind.DICT, call.site, keys=dict(thing.keys)))
    everything = join(*thing.keys.values()) if thing.keys else NOTHING
    if name == "values":
        return one(Thing(Kind.ITERATOR, call.site, inner=everything))
    if name == "items":
        pair = one(Thing(Kind.TUPLE, call.site, items=(NOTHING, everything)))
        return one(Thing(Kind.ITERATOR, call.site, inner=pair))
    return None


def _on_batch(batch: Thing, name: str, call: Call) -> Value | None:
    """Of a batch that is a dict, as it has these methods."""
    if name in ("get", "pop"):
        return containers.item_of(batch, call.args[0] if call.args else NOTHING)
    entry = containers.item_of(batch, NOTHING)
    pair = one(Thing(Kind.TUPLE, call.site, items=(NOTHING, entry or NOTHING)))
    return one(Thing(Kind.ITERATOR, call.site, inner=pair if name == "items" else entry))


def _entry(thing: Thing, name: str, call: Call) -> Value:
    """``d.get(key, default)``, ``d.pop(key, default)``, ``d.setdefault(key, default)``."""
    assert thing.keys is not None
    key = call.args[0]
    known = thing.keys.get(key.const, thing.keys.get(0)) if key.known else None
    default = call.args[1] if len(call.args) > 1 else NOTHING
    if key.known and known is not None:
        return known
    if name == "setdefault":
        slot: object = key.const if key.known else 0
        thing.keys[slot] = join(thing.keys.get(slot), default)
        return thing.keys[slot]
    return default if key.known else join(*thing.keys.values(), default)


def _arguments(m: Machine, f: Frame, name: str, call: Call) -> Value:
    parsed = one(m.make(Kind.ARGUMENT, f, call.site))
    if name == "parse_known_args":
        return one(Thing(Kind.TUPLE, call.site, items=(parsed, NOTHING)))
    return parsed


def _on_tensor(m: Machine, f: Frame, receiver: Value, name: str, call: Call) -> Value:
    values = (receiver, *call.args, *call.kwargs.values())
    measure = receiver.measure
    if name in ("sum", "mean"):
        axis = call.arg(0, "dim") or call.arg(0, "axis")
        return tensor_calls.reduced(m, f, name, measure, measures.axis_of(axis), call, values)
    if name == "size":
        return _size(m, f, receiver, call)
    if name in measures.TRAITS or (name == "type" and len(values) == 1):
        return NOTHING
    if name == "new_tensor" and call.args:
        return computed(*call.args)  # of what it is given, as a type of the receiver's
    found = _on_entries(m, f, receiver, name, call) if measure in measures.ENTRIES else None
    if measure is Measure.UNIFORM:
        found = tables.looked_up(m, name, call, receiver) or tables.for_each(
            m, name, call, receiver
        )
    if found is not None:
        return found
    summed = measure in measures.ADDITIVE and name in measures.KEEPS_SUM
    if summed or name in measures.KEEPS_ANY:
        return computed(receiver, measure=measure)
    if name in ("mul_", "mul", "div_", "div") and call.args:
        op: ast.operator = ast.Mult() if name.startswith("mul") else ast.Div()
        value = computed(*values, measure=measures.binary(op, receiver, call.args[0]))
        divides = name.startswith("div") and call.arg_sites
        at = call.arg_sites[0] if divides else call.site
        return counts.quotient(m, f, value, call.site, call.args[0], at)
    if name == "format":
        return computed(*map(told, values))
    return Value((), flat_deps(computed(*values)), computed(*values).measure)


def _on_entries(m: Machine, f: Frame, receiver: Value, name: str, call: Call) -> Value | None:
    """A method of a tensor with entries of samples, None when it is not followed."""
    values = (receiver, *call.args, *call.kwargs.values())
    known = matrices.function(m, name, call) or batch_axis.order(m, f, name, call, receiver)
    known = known or batch_axis.along(name, call, 0, receiver)
    if known is not None:
        return known
    if tensor_calls.mixes_samples(name, call, 0, receiver):
        mixed = computed(*values, measure=measures.MIXED)
        return tensor_calls.pair(call, mixed) if tensor_calls.gives_pair(name, call, 0) else mixed
    parts = by_sample.cut(name, call, 0, receiver)
    if parts is not None:
        return parts
    if name in rows.CUTS and not f.no_grad and axis_counts.cuts_samples(call, 0, receiver):
        return computed(*values, measure=Measure.MIXED)
    if name in measures.KEEPS_BATCH_AXIS:
        measure = measures.operated(name, *values)
        part = counts.compared(f, name, computed(*values, measure=measure))
        return tensor_calls.pair(call, part) if tensor_calls.gives_pair(name, call, 0) else part
    if name in counts.PICKS:
        return tensor_calls.picked(call, values)
    if name in counts.SIZES:
        return counts.size(m, f, receiver, call.site)
    told = bool(call.args) is (name == "log_prob")  # a shape to draw would be more axes
    return tensor_calls.entry_by_entry(call) if name in OF_DISTRIBUTIONS and told else None


def _size(m: Machine, f: Frame, receiver: Value, call: Call) -> Value:
    if is_of_one(receiver):  # each sample has its own
        return counts.size(m, f, receiver, call.site)
    if not call.args:
        known = receiver.measure in measures.ENTRIES
        return counts.shape(m, f, receiver, call.site) if known else receiver
    if receiver.measure in measures.ENTRIES:
        return counts.length(m, f, receiver, call.args[0], call.site)
    return NOTHING
