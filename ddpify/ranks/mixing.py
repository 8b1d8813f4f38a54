"""Numbers of all ranks and numbers of this one: what is computed from both is neither.

A value that was summed over the ranks has a mark among its ``deps``; so has what divides or
multiplies such a value and one of this rank's samples: ``correct / total`` where only ``total``
was reduced. Marks are things, so that they go wherever a value goes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Final

from ddpify.ranks.frames import Frame
from ddpify.ranks.model import DATA, Call, Thing, Value
from ddpify.ranks.protocol import Machine

SUMMED, MIXED = "$summed", "$mixed"
# The helpers that sum, and what they are made of.
_SUMS: Final = frozenset({"reduce_sum", "reduce_mean", "all_reduce"})


def summed(m: Machine, value: Value, call: Call | None) -> Value:
    """``value`` as it comes out of a sum over the ranks."""
    if call is None or call.method not in _SUMS:
        return value
    mark = Thing("mark", SUMMED, call.site, call)
    m.marks = True
    return _marked(value, mark)


def _marked(value: Value, mark: Thing) -> Value:
    """With the mark, elements included; what was mixed is not any more, as all ranks agree."""
    deps = frozenset(t for t in value.deps if t.name != MIXED) | {mark}
    items = value.items
    if items is not None:
        items = tuple(_marked(item, mark) for item in items)
    return replace(value, deps=deps, items=items)


def combined(m: Machine, f: Frame, node: ast.BinOp, value: Value, a: Value, b: Value) -> Value:
    """``a / b``, marked if one is of all ranks and the other of this one."""
    if not m.marks or not isinstance(node.op, (ast.Div, ast.FloorDiv)):
        return value
    if not (_is_summed(a) and _is_own(b)) and not (_is_own(a) and _is_summed(b)):
        return value
    return replace(value, deps=value.deps | {Thing("mark", MIXED, f.module.site(node))})


def attribute(m: Machine, f: Frame, thing: Thing, name: str, value: Value, node: ast.AST) -> Value:
    """``meter.avg``, marked where ``meter.sum`` is of all ranks by now, but not what it gave."""
    if not m.marks or thing.cls is None or not _is_own(value):
        return value
    others = [key for key, held in thing.attrs.items() if key != name and _is_summed(held)]
    if not any(_computes(thing, name, key) for key in others):
        return value
    return replace(value, deps=value.deps | {Thing("mark", MIXED, f.module.site(node))})


def _computes(thing: Thing, name: str, key: str) -> bool:
    """Whether a method says ``self.avg = self.sum / …``."""
    assert thing.cls is not None
    made = re.compile(rf"self\.{re.escape(name)}\s*=[^=\n]*\bself\.{re.escape(key)}\b")
    return any(made.search(one.text) for info in thing.cls.mro() for one in info.methods.values())


def _is_summed(value: Value) -> bool:
    return not value.origins and any(thing.name == SUMMED for thing in value.made_from)


def _is_own(value: Value) -> bool:
    """Whether a number comes from this rank's samples alone."""
    return value.has(DATA) and not any(thing.name == SUMMED for thing in value.made_from)
