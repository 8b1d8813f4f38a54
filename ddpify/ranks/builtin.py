"""Python's own functions, the environment and the end of the process."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ddpify.python import words as names
from ddpify.ranks import (
    assigning,
    containers,
    environment,
    fields,
    folding,
    iterables,
    mixing,
    naming,
    narrowing,
    objects,
    options,
    picked,
    sizes,
    words,
)
from ddpify.ranks.attributes import attribute_of
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import UNSET, RankCall, RankThing, RankValue
from ddpify.ranks.namespaces import forget, namespaces
from ddpify.ranks.origins import CLOCK, HASH, IDENTITY, Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result, with_origin
from ddpify.ranks.values import (
    FALSE,
    NONE,
    SHARDED,
    TENSOR,
    TRUE,
    Length,
    constant,
    key_of,
    of,
    spread,
    symbol,
)


def _exit(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    code = one.args[0] if one.args else NONE
    fine = code.known and code.atoms[0] in (0, None)
    m.end(f, "stop" if fine else "abort", one.node)
    return NONE


def _exec(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``exec``: the executed text may set any global."""
    space = naming.namespace(m, f.module).attrs
    for name, value in list(space.items()):
        if value.known and not value.things and not value.origins and not name.startswith("__"):
            m.write(space, name, symbol(f"{f.module.name}.{name}"))
    return result(one)


def _convert(
    kind: Callable[..., object],
) -> Callable[[RankMachine, RankFrame, RankCall], RankValue | None]:
    def converted(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
        if len(one.args) != 1:
            return None
        value = one.args[0]
        atoms: list[Any] = []
        for atom in value.atoms:
            if isinstance(atom, Symbol):  # the number in a text may be 0
                atoms.append(Symbol(atom.key, atom.parts) if kind in (int, float) else atom)
                continue
            try:
                atoms.append(sizes.apply(kind, atom))
            except Exception:  # the user's constant may not convert
                return _set_by_another(value)
        made = result(one) if isinstance(atoms[0], Symbol) else value
        return replace(made, atoms=(atoms[0], atoms[1]), origins=spread(value), items=None)

    return converted


def _set_by_another(value: RankValue) -> RankValue | None:
    """``int(os.environ.get("PMI_RANK"))`` stops unless another launcher has set it."""
    unset = (thing.name for thing in value.deps if thing.kind == UNSET)
    return next((symbol(f"environ[{name}]") for name in unset), None)


def _defaultdict(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``defaultdict(list)``: no entries yet."""
    return replace(result(one), keys=()) if len(one.args) == 1 and one.args[0].things else None


def missing(
    m: RankMachine, f: RankFrame, base: RankValue, index: RankValue, node: ast.AST
) -> RankValue | None:
    """What ``defaultdict(list)`` makes for a name that it does not have, and keeps."""
    made = base.made_by("collections.defaultdict")
    given = made.call.args if made is not None and made.call is not None else ()
    if len(given) != 1:
        return None
    if given[0].names() == {"builtins.list"}:
        found = RankValue(symbol(f"list@{base.atoms[0]}").atoms, items=())
    elif given[0].names() == {"builtins.dict"}:
        found = RankValue(symbol(f"dict@{base.atoms[0]}").atoms, keys=())
    else:
        found = m.apply(f, given[0], node)
    m.aliases.change(m.write, base, containers.with_entry(base, index, found))
    return found


def names_of(value: RankValue) -> RankValue | None:
    """The names in a dict: ranks agree on them though its values are their own."""
    if not value.keys or any(name == containers.ANY for name, _ in value.keys):
        return None
    names = [name for name, _ in value.keys]
    one = symbol(f"names({names})")
    return RankValue(one.atoms, items=tuple(constant(name) for name in names))


def _listed(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``sorted(values)``, ``list(values)`` of a dict."""
    found = names_of(one.args[0]) if one.args else None
    if found is None:
        return iterables.same(m, f, one)
    if one.name != "builtins.sorted":
        return found
    return replace(found, items=tuple(sorted(found.items or (), key=lambda i: str(i.atoms[0]))))


def _getattr(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    if len(one.args) < 2 or not isinstance(one.args[1].constant, str):
        return _chosen(m, one)
    name = one.args[1].constant
    base = one.args[0]
    if name == "_orig_mod" and len(one.args) == 3:
        return one.args[2]  # what `torch.compile` adds, which gives the model itself here
    held = any(
        t.kind in ("result", "attribute", "external")
        or name in t.attrs
        or (t.cls is not None and naming.class_attribute(m, t.cls, name) is not None)
        for t in base.things
    )
    if len(one.args) == 2 or held:
        return options.or_default(m.run.calls, one, attribute_of(m, f, base, name, one.node))
    plain = bool(base.things) and all(t.cls and not t.cls.external_bases() for t in base.things)
    default = one.args[2] if plain and one.args[2].things else None
    return m.by_name(name, one.site) or default or result(one)


def _chosen(m: RankMachine, one: RankCall) -> RankValue | None:
    """``getattr(models, args.arch)`` of a module of the project."""
    if len(one.args) < 2 or one.args[1].known:
        return None
    modules = [thing.info for thing in one.args[0].things if thing.kind == "module"]
    return naming.chosen(m, modules[0]) if len(modules) == 1 else None


def _setattr(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    if len(one.args) == 3 and isinstance(one.args[1].constant, str):
        base, name, value = one.args[0], one.args[1].constant, one.args[2]
        m.store(f, base, name, value, one.node, False)
        assigning.set_attribute(m, base, name, value, one.site)
    elif len(one.args) == 3:
        for thing in namespaces(one.args[0]):
            forget(m, thing, one.site)
    return NONE


def _super(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    given = (
        next((t.info for t in one.args[0].things if t.kind == "class"), None) if one.args else None
    )
    own = one.args[1] if len(one.args) > 1 else next(iter(f.names.values()), None)
    cls = given or f.cls
    if own is None or cls is None or not own.things:
        return None
    thing = own.things[0]
    if thing.kind not in ("instance", "class"):
        return None
    return of(RankThing("super", thing.name, thing.site, thing.call, cls, receiver=thing))


def _len(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    if one.args and one.args[0].keys is None and one.args[0].items is None:
        # each rank has equally many batches: samplers pad
        count = symbol(f"len({getattr(one.args[0].atoms[0], 'key', '?')})", one.args[0].clean())
        count = replace(count, origins=picked.in_number(one.args[0]))
        return mixing.counted(count, one.args[0], one.site)
    # as many as were put in, whatever they are: times, losses
    length = Length(f"{one.name}@{one.site}", of=one.args[0]) if one.args else None
    return replace(_agreed(length.key, one), atoms=(length, length)) if length else None


def _hash(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``hash(text)``: each process salts its own, unless PYTHONHASHSEED is set."""
    value = one.args[0] if one.args else NONE
    return None if _is_number(value) else with_origin(result(one), CLOCK, HASH, one)


def _is_number(value: RankValue) -> bool:
    """Whether it hashes to itself: an element of a ``range`` comes from nothing else."""
    if value.known:
        return not isinstance(value.atoms[0], str)
    counted = key_of(value).startswith("element@") and not any(value.sources())
    return counted or not value.names().isdisjoint({"builtins.int", "builtins.len"})


def _isinstance(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    if len(one.args) != 2:
        return None
    wanted = one.args[1].items or (one.args[1],)
    names = {name for value in wanted for name in value.names()}
    answers = {narrowing.is_one(thing, names) for thing in one.args[0].things}
    if answers in ({True}, {False}):
        return TRUE if True in answers else FALSE
    if names == {"torch.Tensor"}:
        return TRUE if _is_tensor(one.args[0]) else _agreed(f"{TENSOR}@{one.site}", one)
    if names and names <= _SHARDED_KINDS and not any(map(_is_sharded, one.args[0].sources())):
        return _agreed(f"{SHARDED}@{one.site}", one)
    return _agreed(f"isinstance@{one.site}", one)


_SHARDED_KINDS: Final = frozenset(
    {words.FSDP, *(f"{words.DIST}{m}.FSDPModule" for m in ("fsdp", "_composable.fsdp"))}
)


def _is_sharded(thing: RankThing) -> bool:
    return thing.name == words.FSDP or thing.sharded is not None


_MAKES_TENSOR: Final = re.compile(r"torch\.(nn\.functional\.)?(?!load$|device$|compile$)[a-z]\w*")


def _is_tensor(value: RankValue) -> bool:
    """Whether a value is a tensor that a function of torch has made, and nothing else."""
    things = value.things
    return bool(things) and all(
        t.kind == "result" and _MAKES_TENSOR.fullmatch(t.name) for t in things
    )


_KINDS: Final = ("torch.is_tensor", "torch.is_floating_point", "numpy.isscalar")


def _agreed(key: str, one: RankCall) -> RankValue:
    """What ranks agree on though their samples differ: types, attributes, dimensions."""
    value = symbol(key, *one.args)
    return replace(value, origins=frozenset(o for o in value.origins if o.kind in IDENTITY))


def _hasattr(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    things = one.args[0].things if len(one.args) == 2 else ()
    if one.name == "builtins.hasattr" and things:
        name = one.args[1].constant
        if all(t.kind == "result" and t.name in words.WRAPPERS and name in t.attrs for t in things):
            return TRUE
    if one.name == "builtins.type":
        return objects.type_of(m, f, one) or _agreed(f"{one.name}@{one.site}", one)
    asked = TENSOR if one.name == "torch.is_tensor" else one.name
    return _agreed(f"{asked}@{one.site}", one)


HANDLERS: Final[dict[str, Callable[[RankMachine, RankFrame, RankCall], RankValue | None]]] = {
    "os.environ.get": environment.get,
    "os.environ.pop": environment.get,
    "os.getenv": environment.get,
    **dict.fromkeys(names.EXITS, _exit),
    "builtins.exec": _exec,
    "builtins.int": _convert(int),
    "builtins.float": _convert(float),
    "builtins.str": _convert(str),
    "builtins.bool": _convert(bool),
    **folding.HANDLERS,
    **dict.fromkeys(names.NAMESPACES, fields.namespace),
    "collections.namedtuple.__call__": fields.named_tuple,
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.super": _super,
    "builtins.len": _len,
    "builtins.hash": _hash,
    "collections.defaultdict": _defaultdict,
    "builtins.list": _listed,
    "builtins.sorted": _listed,
    **iterables.HANDLERS,
    **objects.HANDLERS,
    "builtins.tuple": _listed,
    "builtins.isinstance": _isinstance,
    **dict.fromkeys(("builtins.hasattr", "builtins.callable", "builtins.type", *_KINDS), _hasattr),
}
