"""Collect one reading of the program into the frozen facts that rules are written against."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from typing import Final

from ddpify.facts import graph, groups, roles, sharding, trackers
from ddpify.facts.batch_forwards import collating, comparing
from ddpify.facts.carrying import first_batches
from ddpify.facts.constructed import made_late
from ddpify.facts.copies import original
from ddpify.facts.details import Bypass
from ddpify.facts.effects import effect_of, io_helpers
from ddpify.facts.events import Access, Bind, Call, Forward
from ddpify.facts.gradients import behind
from ddpify.facts.model import Entry, Facts, Home, Model, Status
from ddpify.facts.norms import has_norms, keeps_means
from ddpify.facts.phases import phases
from ddpify.facts.preparation import preparations, prepared
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import FunctionInfo, ModuleInfo
from ddpify.facts.shown_meters import meters
from ddpify.facts.sinks import Own, Part, assigned, parts, sinks
from ddpify.facts.sized import model_shapes
from ddpify.facts.texts import Tellers, told
from ddpify.facts.values import Kind, Thing
from ddpify.facts.within import Within, within
from ddpify.names import INSTALLED
from ddpify.project import Project
from ddpify.python import libraries
from ddpify.roots import beyond
from ddpify.source import Site

# What a part of a model cannot come from without our seeing what it is.
_OURS: Final = INSTALLED.partition(".")[0]  # helpers have no layers
_READ: Final = sys.stdlib_module_names | libraries.WITHOUT_LAYERS | {"builtins", "torch", _OURS}


def gather(project: Project, target: Machine, models: tuple[Model, ...], status: Status) -> Facts:
    """The facts of the target reading; what other readings found is added by the caller."""
    calls = roles.calls_of(target)
    training = roles.training_loops(calls)
    trained, evaluating = _forwards(target, calls)
    return _with_visible(
        target,
        Facts(
            root=str(project.root),
            entry=_entry(target, next(iter(target.modules.values()))),
            status=status,
            models=models,
            training=training,
            loaders=roles.loaders(calls, training, target),
            steps=roles.steps(calls),
            calls=calls,
            training_forwards=trained,
            evaluation_forwards=evaluating,
            forwards=roles.forwards_of(target),
            binds=tuple(e for e in target.events if isinstance(e, Bind)),
            accesses=tuple(e for e in target.events if isinstance(e, Access)),
            ends=tuple(target.ends.values()),
            unknowns=tuple(target.unknowns),
            beyond={top: at for top in project.missed for at in beyond(project.root, top)},
            values=target.values,
            sharded=target.sharded,
            spared=target.spared,
            trees=target.trees,
            bypasses=bypasses(calls),
            counted=frozenset(t.born for t in sharding.counted(target)),
            phases=phases(target, training),
            dealt=target.target.dealt,
            firsts=tuple(target.firsts),
            compared=comparing(target, trained),
            collated=collating(target, trained),
        ),
    )


def _forwards(
    m: Machine, calls: tuple[Call, ...]
) -> tuple[tuple[Forward, ...], tuple[Forward, ...]]:
    """Model calls that train, and those of trained models, or copies, that do not."""
    forwards = roles.forwards_of(m)
    outputs = roles.training_forwards(calls, forwards)
    wrapped = {roles.whole(f.model) for f in forwards if f.model.kind is Kind.WRAPPED}
    trained = tuple(f for f in forwards if f.output in outputs)
    others = (f for f in forwards if f.output not in outputs)
    return trained, tuple(f for f in others if original(roles.whole(f.model)) in wrapped)


def _with_visible(m: Machine, facts: Facts) -> Facts:
    """Add what a user sees from outside: effects, the helpers that make them, numbers shown."""
    sites = preparations(facts.calls, facts.trees)
    inner = within(m)
    calls = (*facts.calls, *inner.calls)
    known = (effect_of(call) for call in calls if not prepared(call, sites))
    effects = tuple(effect for effect in known if effect is not None)
    helpers = io_helpers(calls, effects, facts.trees)
    written = assigned(facts.accesses, facts.trees)
    shown = sinks((*facts.calls, *written), effects, helpers)
    trained = frozenset(t.born for loop in facts.training for t in loop.loaders)
    keep = frozenset(thing for end in facts.ends for thing in end.keep)
    own = Own(m, trained, keep, trackers.kept(m, m.made(Kind.INSTANCE)))
    apart = frozenset(inner.calls)
    seen = [(call, _of_one_rank(facts, call, own, inner)) for call in shown if call in apart]
    shown = tuple(call for call in shown if call not in apart)
    first = [(call, _parts(m, facts, call, own, {})) for call in shown]
    of_writers = _of_writers(facts)
    asking = {
        c.where.function
        for c, found in first
        if not all(p.how for p in found) or (found and c.where.function in of_writers)
    }
    unclear = frozenset(f for f in asking if f is not None)
    tellers = told(shown, unclear, facts.calls, facts.trees)
    telling = (c for c in facts.calls if c.target in tellers and c.where.function not in helpers)
    shown = tuple(sorted(dict.fromkeys((*shown, *telling)), key=lambda call: call.order))
    return replace(
        facts,
        effects=effects,
        helpers=helpers,
        preparations=sites,
        sinks=(*((call, _parts(m, facts, call, own, tellers)) for call in shown), *seen),
        within=inner.calls,
        first_batches=_first_batches(facts, inner),
        model_shapes=model_shapes(m, inner.calls),
        keeps_means=any(map(keeps_means, m.modules.values())),
    )


def _first_batches(facts: Facts, inner: Within) -> frozenset[Site]:
    values = {**facts.values, **inner.values}
    return first_batches((*facts.binds, *inner.binds), values, facts.trees)


def _of_writers(facts: Facts) -> frozenset[FunctionInfo | None]:
    """The methods of the project's own trackers, which a stand-in does not have on other ranks."""
    calls = (call for call in facts.calls if call.receiver is not None)
    return frozenset(c.target for c in calls if c.receiver and c.receiver.of(Kind.TRACKER))


def _parts(m: Machine, facts: Facts, call: Call, own: Own, tellers: Tellers) -> tuple[Part, ...]:
    tree = facts.tree(call.site)
    own = replace(own, tracked=trackers.known_at(call, facts.ends, own.tracked))
    shown = parts(tree, call, m.values, own, tellers)
    whole = meters(tree, call, facts.ends, m.values, own)
    known = (p for p in shown if p.how or not any(w.site.within(p.site) for w in whole))
    return tuple(dict.fromkeys((*known, *whole)))


def _of_one_rank(facts: Facts, call: Call, own: Own, inner: Within) -> tuple[Part, ...]:
    """What a layer shows: ranks need not come by alike, so that nothing is reduced there."""
    found = parts(facts.tree(call.site), call, inner.values, own, {})
    return tuple(replace(part, how="", made=None) for part in found)


def bypasses(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Calls of a model's parts or methods that a backward pass goes through."""
    found: list[Call] = []
    for call in roles.backwards(calls):
        for value in (call.receiver, *call.args):
            outputs = behind(value.deps) if value is not None else ()
            bypasses = (output.detail(Bypass) for output in outputs)
            found.extend(one.call for one in bypasses if one is not None)
    return tuple(dict.fromkeys(sorted(found, key=lambda c: c.order)))


def asks_methods(calls: tuple[Call, ...]) -> bool:
    """Whether a method of a model is called with gradient from outside of it.

    Bare it is entered; of a wrapper's inner module it goes around the wrapper.
    """
    for call in calls:
        models = call.receiver.of(Kind.MODEL) if call.receiver is not None else ()
        outside = models and call.where.frame.self_thing not in models
        if outside and call.target is not None and not call.where.no_grad:
            return True
    return False


def models_of(
    first: Machine, bare: Machine, homes: dict[tuple[Thing, ...], Home | None]
) -> tuple[Model, ...]:
    calls = roles.calls_of(bare)
    norms = [c for c in calls if c.name.startswith("torch.nn.BatchNorm")]
    layers = [*norms, *(c for c in calls if _foreign(c))]
    parallel = tuple(c for c in roles.calls_of(first) if c.name.endswith(".DataParallel"))
    asked = (a for name in ("children", "named_children") for a in first.events.accesses(name))
    listed = tuple(a.base_site for a in asked if parallel and a.base.of(Kind.WRAPPED))
    wrapped, sharded = groups.wrapped(bare), groups.sharded(bare)
    again = graph.repeated(bare)
    optimizers = dict(groups.groups(bare))
    normed = {things: any(has_norms(t, layers, calls) for t in things) for things in homes}
    return tuple(
        Model(
            things,
            optimizers[things],
            home,
            bool(set(things) & wrapped),
            normed[things],
            normed[things] or any(_opaque(t) for t in things),
            bool({t.born for t in things} & again),
            graph.unused(bare, things),
            parallel,
            listed,
            made_late(bare, graph.classes(bare, things), calls),
            bool(set(things) & sharded),
            graph.apart(bare, things),
        )
        for things, home in homes.items()
    )


def _opaque(model: Thing) -> bool:
    """A model whose layers cannot be seen may have buffers."""
    return model.ref is None and not model.name.startswith("torch.nn.")


def _foreign(call: Call) -> bool:
    """A part that a module of the project takes from a library which is not read."""
    function = call.where.function
    if function is None or function.owner is None or function.name != "__init__":
        return False
    module = any(base.startswith("torch.nn.") for base in function.owner.external_bases())
    package, _, rest = call.name.partition(".")
    return module and bool(package and rest) and package not in _READ


def _entry(m: Machine, module: ModuleInfo) -> Entry:
    body = module.tree.body
    guard: tuple[Site, ...] = ()
    for node in body:
        if isinstance(node, ast.If) and _is_main_guard(node.test):
            guard = tuple(m.site_of(module, s) for s in node.body)
    first = next((s for s in body if not _leading(s)), body[-1])
    return Entry(
        module.source.path,
        m.site_of(module, body[0]),
        guard,
        m.site_of(module, first),
        m.site_of(module, body[-1]),
    )


def _leading(node: ast.stmt) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, (ast.Import, ast.ImportFrom))


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and "__name__" in ast.unparse(test)
        and "__main__" in ast.unparse(test)
    )
