"""Python's ways to ask what a model is: the wrapper would answer for itself.

isinstance(model, Net)        # False once it is wrapped
hasattr(model, "head")        # False, too
isinstance(model, nn.DataParallel), getattr(model, "module", model)      # meant for the wrapper
"""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import NOTHING, Kind, Value

_NAMED = frozenset(f"builtins.{name}" for name in ("getattr", "hasattr", "setattr", "delattr"))
_CLASSES = frozenset({"builtins.isinstance", "builtins.type"})
ASKED_FIRST = _NAMED | {"builtins.isinstance"}  # of the first argument alone
_WHOLE = frozenset({"builtins.vars", "builtins.dir"})
# What both answer alike, and what is there only while a model is wrapped.
_ALIKE = frozenset({"module", "training", "train", "eval", "parameters", "state_dict", "forward"})


def asks_what_it_is(facts: Facts, call: Call) -> bool:
    """Whether a builtin asks for the class or an attribute that the user's own model has."""
    if call.name in _NAMED:
        return len(call.args) > 1 and call.args[1].const not in _ALIKE
    if call.name in _CLASSES:
        return not _of_wrappers(_classes(facts, call))
    return call.name in _WHOLE


def _classes(facts: Facts, call: Call) -> list[Value] | None:
    """What a type is compared with; None where that is not known, [] where it is not compared."""
    if call.name == "builtins.isinstance":
        return list(call.args[1:]) or None
    tree = facts.tree(call.site)
    node = tree.expression(call.site)
    above = tree.parent(node) if node is not None else None
    if not isinstance(above, ast.Compare):
        return []
    others = [side for side in (above.left, *above.comparators) if side is not node]
    return [facts.values.get(tree.site(side), NOTHING) for side in others]


def _of_wrappers(values: list[Value] | None) -> bool:
    """Whether a class may be that of a wrapper, or of any module."""
    if values is None:
        return True
    things = [t for v in values for t in v.things]
    things += [t for t in things for item in t.items or () for t in item.things]
    classes = [t for t in things if t.kind is not Kind.TUPLE]
    unknown = any(not value.things for value in values)
    return unknown or any(t.name.endswith(("DataParallel", "nn.Module")) for t in classes)
