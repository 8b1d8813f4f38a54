"""Attributes, as two ranks read them: of modules, classes, instances, and what is not known."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.ranks import (
    autograd,
    configured,
    functions,
    mixing,
    naming,
    objects,
    options,
    picked,
    words,
)
from ddpify.ranks.absent import note_absent, note_unset_attribute
from ddpify.ranks.asked import set_by_rank
from ddpify.ranks.entries import there
from ddpify.ranks.events import Read
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition
from ddpify.ranks.origins import CLOCK, IDENTITY, RANK, Origin, Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.sizes import Sized, world_size
from ddpify.ranks.values import TRUE, constant, differs, key_of, of, per_rank, same, symbol
from ddpify.site import Site


def settled(value: RankValue) -> RankValue:
    """A tensor that was reduced in place is no longer each rank's own."""
    if value.origins and value.things and all(thing.synced for thing in value.things):
        return value.clean()
    return value


def note_read(
    m: RankMachine, f: RankFrame, base: RankValue, name: str, node: ast.Attribute | ast.Subscript
) -> None:
    """Record that something is asked of a wrapped model."""
    if any(t.name in words.WRAPPERS and t.kind == "result" for t in base.things):
        where = (f.module, m.live, f.function, m.here.guards, m.here.loops, m.here.stack)
        m.run.reads.append(Read(m.tick(), base, name, node, *where))


def attribute_of(
    m: RankMachine, f: RankFrame, base: RankValue, name: str, node: ast.expr
) -> RankValue:
    """``base.name``."""
    if isinstance(node, ast.Attribute):
        note_read(m, f, base, name, node)
        note_absent(m, f, base, node)
    if name == "_orig_mod" and base.things:  # `torch.compile` gives the model itself here
        return base
    held = [(base.ranks_of(t), _of_thing(m, f, t, base, name, node)) for t in base.things]
    found = [(ranks, one) for ranks, one in held if one is not None]
    if len(found) == 1:
        return settled(found[0][1])
    if found:
        return settled(per_rank(name, found, frozenset()))
    if base.keys is not None and name in ("keys", "values", "items"):
        return symbol(name, base)
    site = f.module.site(node)
    named = m.by_name(name, site) or _main_of_part(m, base, name, site)
    if named is not None:
        return named
    value = symbol(f"{key_of(base)}.{name}", base)
    if name == "shape":
        value = mixing.counted(value, base, site)
    return replace(value, origins=_in_number(base, name)) if name in _AGREED else value


def _main_of_part(m: RankMachine, base: RankValue, name: str, site: Site) -> RankValue | None:
    """``args.should_save`` of one of several that a framework gave: ``HfArgumentParser(…)``."""
    things = base.sources() if name in words.FRAMEWORK_MAINS else ()
    found = (framework_rank(m, thing, name, site) for thing in things)
    return next((one for one in found if one is not None), None)


def _of_thing(
    m: RankMachine, f: RankFrame, thing: RankThing, base: RankValue, name: str, node: ast.expr
) -> RankValue | None:
    own = objects.written(m, thing, name) if name[:2] == "__" else None
    if own is not None:
        return own
    if thing.kind == "module":
        return naming.member(m, thing.info, name)
    if thing.kind == "super":
        return _inherited(m, f, thing, base, name, node)
    if thing.kind == "class":
        return _of_class(m, f, thing, name, node)
    if name in thing.attrs:
        held = _may_have_changed(thing, name, there(thing.attrs[name]))
        note_unset_attribute(m, f, thing, thing.attrs[name], node)
        return mixing.attribute(m, f, thing, name, held, node)
    if thing.kind == "external":
        if name == "rank" and thing.name.endswith(words.RANK0_DECORATORS[0]):
            return m.rank_value(RANK, name, f.module.site(node))
        dotted = f"{thing.name}.{name}"
        if dotted in words.MPI_NUMBERS:  # `comm.rank`, `comm.size`
            if name == "size":
                return constant(world_size())
            return m.rank_value(RANK, name, f.module.site(node))
        return naming.submodule(m, f.module, dotted) or naming.external(m, dotted)
    found = _of_instance(m, f, thing, thing.cls, base, name, node) if thing.cls else None
    return found or _unknown_attribute(m, f, thing, base, name, node)


def _of_class(
    m: RankMachine, f: RankFrame, thing: RankThing, name: str, node: ast.expr
) -> RankValue:
    if autograd.is_apply(thing.info, name):
        return of(RankThing("attribute", f"{thing.name}.{name}", receiver=thing))
    found = naming.class_attribute(m, thing.info, name)
    return bound(m, f, thing, found, node) if found else symbol(f"{thing.name}.{name}")


def _of_instance(
    m: RankMachine,
    f: RankFrame,
    thing: RankThing,
    cls: ClassDefinition,
    base: RankValue,
    name: str,
    node: ast.expr,
) -> RankValue | None:
    """The attribute that a class gives its object, a dict's entry, or that of ``__getattr__``."""
    found = naming.class_attribute(m, cls, name)
    if found is not None:
        return bound(m, f, thing, found, node)
    entry = dict(base.keys).get(name) if base.keys and name[:2] != "__" else None
    if entry is not None and cls.inherits("builtins.dict"):
        return entry
    return _asked_for(m, f, thing, name, node)


def _inherited(
    m: RankMachine, f: RankFrame, thing: RankThing, base: RankValue, name: str, node: ast.expr
) -> RankValue:
    """``super().name``: of the classes that come after this one."""
    own = thing.receiver
    assert own is not None
    cls = own.info if own.kind == "class" else own.cls
    assert isinstance(cls, ClassDefinition)
    found = naming.class_attribute(m, cls, name, thing.cls)
    if found is not None:
        return bound(m, f, own, found, node)
    if name == "__new__" or own.kind == "class":
        return naming.external(m, f"builtins.object.{name}")
    made = RankThing("attribute", f"{own.name}.{name}", f.module.site(node), receiver=own)
    one = Symbol(f"{own.name}@{id(own)}.{name}")
    return RankValue((one, one), (made,), base.deps | {own})


def _asked_for(
    m: RankMachine, f: RankFrame, thing: RankThing, name: str, node: ast.expr
) -> RankValue | None:
    """What ``__getattr__`` gives for a name that nothing else explains."""
    if name[:2] == "__" or thing.kind != "instance" or name in words.OWN_ATTRIBUTES:
        return None
    return m.call_method(f, of(thing), "__getattr__", node, (constant(name),))


def _may_have_changed(thing: RankThing, name: str, value: RankValue) -> RankValue:
    """A constant that a method sets anew is not known: methods are called again and again."""
    if thing.cls is None or value.things or not value.known or not same(*value.atoms):
        return value
    if isinstance(value.atoms[0], Sized):  # made from the number of processes, which stays
        return value
    if not any(name in info.set_later() for info in thing.cls.mro()):
        return value
    one = Symbol(f"{thing.name}@{id(thing)}.{name}")
    return replace(value, atoms=(one, one), origins=value.origins | set_by_rank(thing, name))


def bound(
    m: RankMachine, f: RankFrame, thing: RankThing, value: RankValue, node: ast.AST
) -> RankValue:
    """A class's attribute through an instance or the class: methods know what they were taken
    from, properties of instances are called."""
    found = [t for t in value.things if t.kind == "function"]
    if not found:
        return _described(m, f, thing, value, node)
    made = []
    for one in found:
        receiver = receiver_of(m, thing, one)
        if receiver is None:
            made.append(one)
            continue
        method = RankThing(
            "function", one.name, one.site, info=one.info, attrs=one.attrs, traits=one.traits
        )
        method.defaults = one.defaults
        method.receiver = receiver
        m.closures[method] = m.closures.get(one)
        if one.traits.property and thing.kind != "class":
            return functions.enter(m, f, method, (), {}, None)
        made.append(method)
    return replace(value, things=tuple(made))


def _described(
    m: RankMachine, f: RankFrame, thing: RankThing, value: RankValue, node: ast.AST
) -> RankValue:
    """``name = property(get)``, and other objects with ``__get__``."""
    made = value.made_by("builtins.property")
    if made is not None and made.call is not None and made.call.args:
        return m.apply(f, made.call.args[0], node, (of(thing),))
    got = m.call_method(f, value, "__get__", node, (of(thing), of(thing)))
    return got if got is not None else value


def receiver_of(m: RankMachine, thing: RankThing, function: RankThing) -> RankThing | None:
    """What a method taken from an instance or a class is given first; None for nothing."""
    if function.traits.static:
        return None
    if function.traits.of_class:
        return thing if thing.kind == "class" or thing.cls is None else m.classes.get(thing.cls)
    return None if thing.kind == "class" else thing


def _unknown_attribute(
    m: RankMachine, f: RankFrame, thing: RankThing, base: RankValue, name: str, node: ast.expr
) -> RankValue | None:
    site = f.module.site(node)
    given = _given(thing, name) or _count_of_bar(thing, name)
    if given is not None:
        return given
    if name == "trainer" and _is_lightnings(thing):
        thing.attrs[name] = of(RankThing("result", words.TRAINER, site))
        return thing.attrs[name]
    if f"{thing.name}.{name}" == words.LOG_DIR:
        m.event(words.LOG_DIR, None, node, f)
        return symbol(f"log_dir@{site}")
    rank = framework_rank(m, thing, name, site)
    of_trainer = name in words.SIZE_NAMES and thing.name.startswith(
        "lightning."
    )  # one process, too
    if rank is None and not (_is_plain(thing) or of_trainer):
        rank = m.by_name(name, site)
    if rank is not None:
        return rank
    if _is_counted(thing, name):
        found = Origin(CLOCK, f"{name}, by the folders that this process finds", site)
        base = replace(base, origins=base.origins | {found})
    place = configured.child(thing, name)
    kind = configured.KIND if place is not None else "attribute"
    made = RankThing(kind, f"{thing.name}.{name}", site, receiver=thing, info=place)
    one = options.option(m.run.calls, thing, name)
    origins = _of_result(thing, base) if thing.kind == "result" else set_by_rank(thing, name)
    trainers = thing.name == "lightning.pytorch.Trainer" and name not in _GIVEN
    if name in _AGREED or trainers:
        origins = _in_number(base, name)
    value = RankValue((one, one), (made,), base.deps | {thing}, origins)
    if name == "shape":
        value = mixing.counted(value, base, site)
    if thing.kind != "result" or not origins:
        thing.attrs[name] = value
    return value


def _of_result(thing: RankThing, base: RankValue) -> frozenset[Origin]:
    """Why an attribute of a result may be each rank's own: where a function that is not known is
    given an object of the project, too, it may be that object's."""
    call = thing.call
    unknown = call is not None and call.name.startswith(("?", "."))
    if call is None or not unknown or not any(t.cls for value in call.given for t in value.things):
        return base.origins
    return frozenset(origin for origin in base.origins if origin.kind in IDENTITY)


def _count_of_bar(thing: RankThing, name: str) -> RankValue | None:
    """``bar.n`` of ``tqdm(disable=rank != 0)``: it stays 0 where nothing is shown."""
    bar = thing.call if thing.name.startswith("tqdm") and name == "n" else None
    off = bar.kwargs.get("disable") if bar is not None else None
    if off is None or not (off.known and differs(off)):
        return None
    first, second = (0 if atom else Symbol(f"n@{id(thing)}") for atom in off.atoms)
    return RankValue((first, second), deps=frozenset({thing}), origins=off.origins)


def _in_number(base: RankValue, name: str) -> frozenset[Origin]:
    return picked.in_number(base) if name == "shape" else frozenset()


_AGREED = frozenset("shape dtype device ndim layout requires_grad world_size".split())
# What a Trainer has from those who made it; its counters and numbers are alike on all ranks.
_GIVEN = frozenset("callbacks checkpoint_callback default_root_dir log_dir logger loggers".split())
_POSITIONS = {"dataset": 0, "sampler": 0}


def _given(thing: RankThing, name: str) -> RankValue | None:
    """``loader.sampler`` and the like: what the constructor was given."""
    if (
        thing.kind != "result"
        or thing.call is None
        or not thing.name.startswith("torch.utils.data.")
    ):
        return None
    position = _POSITIONS.get(name, -1)
    if name == "sampler" and not thing.name.endswith("BatchSampler"):
        position = 3 if thing.name == words.LOADER else -1
    return thing.call.arg(position, name)


def _is_plain(thing: RankThing) -> bool:
    return thing.kind == "result" and thing.name.startswith(("torch.", "numpy.", "builtins."))


def _is_counted(thing: RankThing, name: str) -> bool:
    """``logger.log_dir``: of the next version, after those that have a folder by now."""
    numbered = thing.kind == "result" and thing.name.endswith(words.VERSIONED)
    given = thing.call.kwargs.get("version") if thing.call is not None else None
    return numbered and name in ("log_dir", "version") and given is None


def _is_lightnings(thing: RankThing) -> bool:
    """Whether an object's class is one of Lightning's by inheritance: a module, a callback."""
    bases = thing.cls.external_bases() if thing.cls is not None else ()
    return any(base.startswith("lightning.") for base in bases)


def framework_rank(m: RankMachine, thing: RankThing, name: str, site: Site) -> RankValue | None:
    """``accelerator.is_main_process`` and the like."""
    framework = thing.name.startswith(("accelerate.", "lightning.", "deepspeed.", "transformers."))
    if thing.cls is not None:
        bases = thing.cls.external_bases()
        framework = any(base.startswith(("lightning.", "transformers.")) for base in bases)
    if not framework:
        return None
    if name in words.FRAMEWORK_RANKS:
        return m.rank_value("local-rank" if "local" in name else RANK, name, site)
    if name in words.FRAMEWORK_MAINS:
        return RankValue((True, False), (), frozenset(), frozenset({Origin(RANK, name, site)}))
    if thing.name.startswith("accelerate.") and name in ("use_distributed", "initialized"):
        return TRUE
    return None
