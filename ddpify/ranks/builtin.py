"""Python's own functions, the environment and the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ddpify.ranks import assigning, environment, fields, folding, naming, sizes, words
from ddpify.ranks.attributes import attribute_of
from ddpify.ranks.frames import Frame
from ddpify.ranks.model import IDENTITY, Call, Symbol, Thing, Value
from ddpify.ranks.protocol import Machine
from ddpify.ranks.results import result
from ddpify.ranks.values import (
    FALSE,
    NONE,
    TRUE,
    constant,
    of,
    spread,
    symbol,
)


def _exit(m: Machine, f: Frame, one: Call) -> Value:
    code = one.args[0] if one.args else NONE
    fine = code.known and code.atoms[0] in (0, None)
    m.end(f, "stop" if fine else "abort", one.node)
    return NONE


def _exec(m: Machine, f: Frame, one: Call) -> Value:
    """What is executed may set any global."""
    space = naming.namespace(m, f.module).attrs
    for name, value in list(space.items()):
        if value.known and not value.things and not value.origins and not name.startswith("__"):
            m.write(space, name, symbol(f"{f.module.name}.{name}"))
    return result(one)


def _convert(kind: Callable[..., object]) -> Callable[[Machine, Frame, Call], Value | None]:
    def converted(m: Machine, f: Frame, one: Call) -> Value | None:
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
                return None
        made = result(one) if isinstance(atoms[0], Symbol) else value
        return replace(made, atoms=(atoms[0], atoms[1]), origins=spread(value), items=None)

    return converted


def _dict(m: Machine, f: Frame, one: Call) -> Value | None:
    """``dict(other, a=1)``: its entries, where they are known."""
    given = [arg.keys for arg in one.args]
    if one.star or len(given) > 1 or None in given:
        return None
    entries = dict(given[0] or ()) if given else {}
    made = symbol(f"dict@{one.site}")
    return Value(made.atoms, keys=tuple({**entries, **one.kwargs}.items()))


def _defaultdict(m: Machine, f: Frame, one: Call) -> Value | None:
    """``defaultdict(list)``: no entries yet."""
    made = result(one)
    return replace(made, keys=()) if missing(made) is not None else None


def missing(base: Value) -> Value | None:
    """What ``defaultdict(list)`` gives for a name that it does not have."""
    made = base.made_by("collections.defaultdict")
    given = made.call.args if made is not None and made.call is not None else ()
    if len(given) != 1 or given[0].names() != {"builtins.list"}:
        return None
    return Value(symbol(f"list@{base.atoms[0]}").atoms, items=())


def names_of(value: Value) -> Value | None:
    """The names in a dict: ranks agree on them though its values are their own."""
    if not value.keys:
        return None
    names = [name for name, _ in value.keys]
    one = symbol(f"names({names})")
    return Value(one.atoms, items=tuple(constant(name) for name in names))


def _listed(m: Machine, f: Frame, one: Call) -> Value | None:
    """``sorted(values)``, ``list(values)`` of a dict."""
    found = names_of(one.args[0]) if one.args else None
    if found is None or one.name != "builtins.sorted":
        return found
    return replace(found, items=tuple(sorted(found.items or (), key=lambda i: str(i.atoms[0]))))


def _getattr(m: Machine, f: Frame, one: Call) -> Value | None:
    if len(one.args) < 2 or not isinstance(one.args[1].constant, str):
        return None
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
        return attribute_of(m, f, base, name, one.node)
    named = m.by_name(name, one.site)
    return named or result(one)


def _setattr(m: Machine, f: Frame, one: Call) -> Value | None:
    if len(one.args) == 3 and isinstance(one.args[1].constant, str):
        m.store(f, one.args[0], one.args[1].constant, one.args[2], one.node, False)
        assigning.set_attribute(m, one.args[0], one.args[1].constant, one.args[2])
    return NONE


def _super(m: Machine, f: Frame, one: Call) -> Value | None:
    own = next(iter(f.names.values()), None)
    if own is None or f.cls is None or not own.things:
        return None
    bases = [base for base in f.cls.bases if not isinstance(base, str)]
    thing = own.things[0]
    if thing.kind != "instance" or not bases:
        return own if thing.kind == "instance" and not bases else None
    made = Thing("instance", thing.name, thing.site, thing.call, bases[0], attrs=thing.attrs)
    return of(made)


def _len(m: Machine, f: Frame, one: Call) -> Value | None:
    if one.args and one.args[0].keys is None and one.args[0].items is None:
        # each rank has equally many batches: samplers pad
        return symbol(f"len({getattr(one.args[0].atoms[0], 'key', '?')})", one.args[0].clean())
    # as many as were put in, whatever they are: times, losses
    return _agreed(f"{one.name}@{one.site}", one) if one.args else None


def _isinstance(m: Machine, f: Frame, one: Call) -> Value | None:
    if len(one.args) != 2:
        return None
    wanted = one.args[1].items or (one.args[1],)
    names = {name for value in wanted for name in value.names()}
    things = one.args[0].things
    if things and names & words.WRAPPERS and all(map(_is_module, things)):
        within = {t.name in names for t in things}
        if len(within) == 1:
            return TRUE if within == {True} else FALSE
    return _agreed(f"isinstance@{one.site}", one)


def _is_module(thing: Thing) -> bool:
    """A wrapper or a layer of torch's, or a model of the project that is no wrapper itself."""
    if thing.kind == "instance" and thing.cls is not None:
        return not thing.cls.inherits(*words.WRAPPERS)
    return thing.kind == "result" and thing.name.startswith(("torch.nn.", f"{words.DIST}fsdp."))


def _agreed(key: str, one: Call) -> Value:
    """What ranks agree on though their samples differ: types, attributes, dimensions."""
    value = symbol(key, *one.args)
    return replace(value, origins=frozenset(o for o in value.origins if o.kind in IDENTITY))


def _hasattr(m: Machine, f: Frame, one: Call) -> Value | None:
    things = one.args[0].things if len(one.args) == 2 else ()
    if one.name == "builtins.hasattr" and things:
        name = one.args[1].constant
        if all(t.kind == "result" and t.name in words.WRAPPERS and name in t.attrs for t in things):
            return TRUE
    return _agreed(f"{one.name}@{one.site}", one)


HANDLERS: Final[dict[str, Callable[[Machine, Frame, Call], Value | None]]] = {
    "os.environ.get": environment.get,
    "os.environ.pop": environment.get,
    "os.getenv": environment.get,
    "sys.exit": _exit,
    "builtins.exit": _exit,
    "builtins.quit": _exit,
    "os._exit": _exit,
    "builtins.exec": _exec,
    "builtins.int": _convert(int),
    "builtins.float": _convert(float),
    "builtins.str": _convert(str),
    "builtins.bool": _convert(bool),
    **folding.HANDLERS,
    "types.SimpleNamespace": fields.namespace,
    "argparse.Namespace": fields.namespace,
    "collections.namedtuple.__call__": fields.named_tuple,
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.super": _super,
    "builtins.len": _len,
    "builtins.dict": _dict,
    "collections.defaultdict": _defaultdict,
    "builtins.list": _listed,
    "builtins.sorted": _listed,
    "builtins.tuple": _listed,
    "builtins.isinstance": _isinstance,
    **dict.fromkeys(
        ("builtins.hasattr", "builtins.callable", "builtins.type", "torch.is_tensor"), _hasattr
    ),
}
