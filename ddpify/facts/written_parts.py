"""Values that an expression writes out one by one: a tuple, a dict, an object of fields. ::

return logits, loss
return {"logits": logits, "loss": loss}
return Output(logits=logits, loss=loss)     # a data class, a named tuple, a namespace
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpify.facts import fields
from ddpify.facts.fresh import qualified
from ddpify.facts.scopes import ClassInfo, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.python.words import NAMESPACES
from ddpify.source import Site


@dataclass(frozen=True)
class OutputForm:
    """In what values stand: the ``keys`` of a dict, the fields of an object, "" in a tuple."""

    kind: Kind
    keys: tuple[str, ...]
    name: str = ""
    ref: ClassInfo | None = None

    def made(self, born: Site, values: Sequence[Value]) -> Thing:
        """The tuple, dict or object of these."""
        thing = Thing(self.kind, born, self.name, ref=self.ref)
        if self.kind is Kind.DICT:
            thing.keys = dict(zip(self.keys, values, strict=True))
            return thing
        thing.attrs.update({k: v for k, v in zip(self.keys, values, strict=True) if k})
        thing.items = tuple(values) if self.kind is Kind.TUPLE else None
        return thing


@dataclass(frozen=True)
class WrittenParts:
    """What is written, and in which form."""

    form: OutputForm
    values: tuple[ast.expr, ...]


def parts_of(
    value: ast.expr | None, info: FunctionInfo, bound: Mapping[str, Sequence[ast.expr]]
) -> WrittenParts | None:
    """The parts of an expression in a function, of which names are ``bound`` to these."""
    match value:
        case ast.Tuple(elts=parts, ctx=ast.Load()) if not _starred(parts):
            return WrittenParts(OutputForm(Kind.TUPLE, ("",) * len(parts)), tuple(parts))
        case ast.Dict(keys=keys, values=parts) if keys:
            names = tuple(k.value for k in keys if isinstance(k, ast.Constant))
            said = tuple(name for name in names if isinstance(name, str))
            return (
                WrittenParts(OutputForm(Kind.DICT, said), tuple(parts))
                if len(said) == len(keys)
                else None
            )
        case ast.Call() if not _starred(value.args) and all(k.arg for k in value.keywords):
            return _of_call(value, info, bound)
    return None


def fields_in(thing: Thing) -> dict[str, Value]:
    """What the fields of a data class, a named tuple or a namespace are."""
    return thing.attrs if thing.name in NAMESPACES or fields.is_record(thing.ref) else {}


def parts_in(thing: Thing) -> dict[object, Value]:
    """What a tuple, a dict or an object of fields holds, by place or name."""
    if thing.items is not None:
        return dict(enumerate(thing.items))
    named: dict[object, Value] = dict(thing.keys or {})
    named.update(fields_in(thing))
    return named


def made_of(thing: Thing, parts: Mapping[object, Value]) -> Thing:
    """A tuple, a dict or an object like this one, of other parts."""
    made = Thing(thing.kind, thing.born, thing.name, dict(thing.attrs), ref=thing.ref)
    if thing.items is not None:
        made.items = tuple(parts.values())
        made.attrs.update(zip(thing.attrs, made.items, strict=False))
    elif thing.keys is not None:
        made.keys = dict(parts)
    else:
        made.attrs.update({str(key): value for key, value in parts.items()})
    return made


def _of_call(
    call: ast.Call, info: FunctionInfo, bound: Mapping[str, Sequence[ast.expr]]
) -> WrittenParts | None:
    named = {str(k.arg): k.value for k in call.keywords}
    if not call.args and ast.unparse(call.func) == "dict":
        return (
            WrittenParts(OutputForm(Kind.DICT, tuple(named)), tuple(named.values()))
            if named
            else None
        )
    library = qualified(info, call.func)
    if not call.args and library in NAMESPACES:
        form = OutputForm(Kind.INSTANCE, tuple(named), library)
        return WrittenParts(form, tuple(named.values()))
    if not isinstance(call.func, ast.Name):
        return None
    local = bound.get(call.func.id, ())
    if local:
        names = _local_fields(local[0]) if len(local) == 1 and not named else ()
        whole = names and len(names) == len(call.args)
        return WrittenParts(OutputForm(Kind.TUPLE, names), tuple(call.args)) if whole else None
    things = info.module.globals.get(call.func.id, NOTHING).things
    ref = things[0].ref if len(things) == 1 else None
    if not isinstance(ref, ClassInfo) or not fields.is_record(ref):
        return None
    given = dict(zip(fields.names_of(ref), call.args, strict=False)) | named
    kind = Kind.TUPLE if fields.TUPLES & set(ref.external_bases()) else Kind.INSTANCE
    if kind is Kind.TUPLE and tuple(given) != tuple(fields.names_of(ref)):
        return None
    return WrittenParts(OutputForm(kind, tuple(given), ref.name, ref), tuple(given.values()))


def _local_fields(made: ast.expr) -> tuple[str, ...]:
    """``["mu", "sigma"]`` of ``namedtuple("Gauss", ["mu", "sigma"])`` in the function itself."""
    match made:
        case ast.Call(func=func, args=[_, ast.List(elts=names)], keywords=[]):
            known = ast.unparse(func).endswith("namedtuple")
            return tuple(str(e.value) for e in names if isinstance(e, ast.Constant) and known)
    return ()


def _starred(parts: Sequence[ast.expr]) -> bool:
    return any(isinstance(part, ast.Starred) for part in parts)
