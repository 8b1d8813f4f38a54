"""Questions whether a mask picks anything, and stores that need no such question. ::

if mask.any():
    x[mask] = 0
if torch.sum(hits) > 0:     # hits = torch.sum(overlap.eq(best), 2)
    labels[hits > 0] = 1

What is stored in a tensor whose samples lie behind the first axis, where a mask picks some. ::

    missing = steps[t, :, 0] == 0
    steps[t, missing, 0] = out[missing]     # each sample's own

Elsewhere a sample may get what is another's, so that nothing is known of the axes any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, UNKNOWN_AXIS, Kind, Measure, Value

ASKS = frozenset({"any", "sum", "count_nonzero"})
COMPARES = frozenset("eq ne lt gt le ge isnan isinf isfinite isclose bool logical_not".split())
KEEPS = frozenset("float double int long byte".split())
TORCH = ("torch", "np", "numpy")


def asked_of(test: ast.AST | None) -> ast.expr | None:
    """Of ``mask.any()``, ``torch.any(mask)``, ``mask.sum() > 0``: the mask; else None."""
    match test:
        case ast.Compare(left=left, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(0)]):
            return _joined(left, ASKS)
        case ast.Call():
            return _joined(test, frozenset({"any"}))
    return None


def _joined(node: ast.expr, names: frozenset[str]) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=library)), args=[mask], keywords=[]) if (
            library in TORCH
        ):
            return mask if node.func.attr in names else None  # type: ignore[attr-defined]
        case ast.Call(func=ast.Attribute(value=mask, attr="item"), args=[]):
            return _joined(mask, names)
        case ast.Call(func=ast.Attribute(value=mask, attr=name), args=[], keywords=[]):
            return mask if name in names else None
    return None


def stores_where(node: ast.If, scope: ast.AST) -> bool:
    """Whether a branch stores only where a mask that ``scope`` makes picks something, if any."""
    mask = asked_of(node.test)
    return not node.orelse and mask is not None and all(_stores(s, mask, scope) for s in node.body)


def _stores(statement: ast.stmt, mask: ast.expr, scope: ast.AST) -> bool:
    """``x[mask] = 0``, of counts ``x[hits > 0] = 0``, and copies that are stored in."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            fills = f"{name}.masked_fill({ast.unparse(mask)}, "
            return ast.unparse(value) == f"{name}.clone()" or (
                ast.unparse(value).startswith(fills) and _compares(mask, scope, COMPARES)
            )
        case ast.Assign(targets=[ast.Subscript(slice=i)]) | ast.AugAssign(ast.Subscript(slice=i)):
            counts = ast.unparse(i) == f"{ast.unparse(mask)} > 0"
            known = COMPARES | KEEPS | {"sum"} if counts else COMPARES
            return (counts or ast.unparse(i) == ast.unparse(mask)) and _compares(mask, scope, known)
    return False


def _compares(node: ast.expr, scope: ast.AST, functions: frozenset[str], depth: int = 4) -> bool:
    """Whether a value is 0, or false, but where a comparison holds."""
    match node:
        case ast.Compare():
            return True
        case ast.UnaryOp(op=ast.Invert(), operand=mask):  # of whole numbers it is something else
            return _compares(mask, scope, COMPARES, depth)
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            return all(_compares(side, scope, functions, depth) for side in (left, right))
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in functions:
            given = node.args[:1] if ast.unparse(owner) in TORCH else [owner]
            return name in COMPARES or (
                bool(given) and _compares(given[0], scope, functions, depth)
            )
        case ast.Name(id=name) if depth:
            made = _bound_alone(name, scope)
            return bool(made) and all(_compares(v, scope, functions, depth - 1) for v in made)
    return False


def bindings(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """What assignments bind each name to."""
    made: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    made.setdefault(target.id, []).append(node.value)
    return made


def _bound_alone(name: str, scope: ast.AST) -> list[ast.expr]:
    """The same; nothing where it may be something else, too."""
    nodes = list(ast.walk(scope))
    made = bindings(nodes).get(name, [])
    named = (n for n in nodes if isinstance(n, ast.Name) and n.id == name)
    stored = sum(isinstance(n.ctx, ast.Store) for n in named)
    given = any(isinstance(n, ast.arg) and n.arg == name for n in nodes)
    return made if stored == len(made) and not given else []


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
