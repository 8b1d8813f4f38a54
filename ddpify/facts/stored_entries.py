"""What is stored in a tensor whose samples lie behind the first axis, where a mask picks some. ::

    missing = steps[t, :, 0] == 0
    steps[t, missing, 0] = out[missing]     # each sample's own

Elsewhere a sample may get what is another's, so that nothing is known of the axes any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.masks import asked_of
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, UNKNOWN_AXIS, Kind, Measure, Value


def axis_behind(m: Machine, f: Frame, target: ast.Subscript, base: Value) -> int:
    """Where the samples of ``base`` are once something is stored at ``target``."""
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    if not 0 < base.axis < len(parts):
        return UNKNOWN_AXIS if base.axis else 0
    mask = parts[base.axis]
    fits = all(_leaves(m, f, part) for part in parts if part is not mask)
    own = isinstance(mask, ast.Name) and _is_own(m, f, target, mask) and _asked(m, f, mask.id)
    return base.axis if fits and own else UNKNOWN_AXIS


def _leaves(m: Machine, f: Frame, part: ast.expr) -> bool:
    """Whether an index goes along one axis of its own: a number or a stretch."""
    number = m.values.get(m.site(f, part), NOTHING)
    return isinstance(part, ast.Slice) or type(number.const) is int or bool(number.of(Kind.INDEX))


def _is_own(m: Machine, f: Frame, target: ast.Subscript, mask: ast.Name) -> bool:
    """Whether what is stored there is that of the samples that the same mask picks."""
    statement = m.tree(f.module.source.path).parent(target)
    given = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(given, ast.Subscript) or ast.unparse(given.slice) != mask.id:
        return False
    whole = m.values.get(m.site(f, given.value), NOTHING)
    late = [t for t in whole.things if t.name == f"builtins.{ast.unparse(given.value)}"]
    if late == [*whole.things] and late and whole.measure is Measure.UNIFORM:
        return True  # not bound before a later pass, which is read, too
    asked, made = m.values.get(m.site(f, mask), NOTHING), list(_makers(m, f, mask.id))
    compares = bool(made) and all(isinstance(node, ast.Compare) for node in made)
    per_sample = asked.measure is Measure.SAMPLES and not asked.axis
    return compares and per_sample and whole.measure is Measure.SAMPLES


def _asked(m: Machine, f: Frame, mask: str) -> bool:
    """Whether it is stored wherever the mask picks one, whichever other samples there are."""
    for guard in f.guards:
        node = m.tree(guard.site.path).expression(guard.site)
        every = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) and guard.holds
        for part in node.values if isinstance(node, ast.BoolOp) and every else [node]:
            value = m.values.get(m.site(f, part), guard.test) if part else guard.test
            asked = asked_of(part)
            said = asked is not None and ast.unparse(asked) == mask and guard.holds
            if not said and value.measure is not Measure.UNIFORM:
                return False
    return True


def _makers(m: Machine, f: Frame, name: str) -> Iterator[ast.AST | None]:
    """The expressions that a name is bound to in a function."""
    for bind in m.events.binds_of(f):
        if bind.target == name:
            site = bind.value_site
            yield m.tree(site.path).expression(site) if site is not None else None
