"""Put code in the place of an expression, with the parentheses that either side needs.

Trees are combined, never text: what is inside `{}` keeps its comments and line breaks.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ddpify.rewrite.errors import CodeError
from ddpify.rules.base import Edit, How

HOLE = "ddpify_hole__"

_NAMED, _OPEN, _LAMBDA, _CONDITIONAL, _NOT, _COMPARISON, _UNARY, _AWAIT, _ATOM = (
    -1,
    0,
    1,
    2,
    5,
    6,
    13,
    15,
    16,
)
_LEVELS: tuple[tuple[tuple[type[cst.CSTNode], ...], int], ...] = (
    ((cst.NamedExpr, cst.GeneratorExp), _NAMED),
    ((cst.Tuple, cst.Yield), _OPEN),
    ((cst.Lambda,), _LAMBDA),
    ((cst.IfExp,), _CONDITIONAL),
    ((cst.Or,), 3),
    ((cst.And,), 4),
    ((cst.Not,), _NOT),
    ((cst.Comparison,), _COMPARISON),
    ((cst.BitOr,), 7),
    ((cst.BitXor,), 8),
    ((cst.BitAnd,), 9),
    ((cst.LeftShift, cst.RightShift), 10),
    ((cst.Add, cst.Subtract), 11),
    ((cst.Multiply, cst.Divide, cst.FloorDivide, cst.Modulo, cst.MatrixMultiply), 12),
    ((cst.BaseUnaryOp,), _UNARY),
    ((cst.Power,), 14),
    ((cst.Await,), _AWAIT),
    ((cst.Integer, cst.Float), _AWAIT),
)
_PRIMARY = (cst.Attribute, cst.Call, cst.Subscript, cst.Await)
_OPERANDS = (cst.Comparison, cst.ComparisonTarget, cst.StarredElement, cst.StarredDictElement)
_CONDITIONS = (cst.IfExp, cst.CompFor, cst.CompIf, cst.FormattedStringExpression)
_STATEMENTS = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Return, cst.Expr, cst.Index)


def is_expression(code: str) -> bool:
    """Whether the code of an edit is an expression (and not a statement)."""
    try:
        cst.parse_expression(code.strip().replace("{}", HOLE))
    except cst.ParserSyntaxError:
        return False
    return True


def template(code: str) -> cst.BaseExpression:
    """The expression with ``HOLE`` for every ``{}``. Raises CodeError."""
    try:
        return cst.parse_expression(code.strip().replace("{}", HOLE))
    except cst.ParserSyntaxError as error:
        raise CodeError(f"not an expression: {code!r}") from error


def with_entries(edits: Iterable[Edit]) -> tuple[str, ...]:
    """What puts a mapping beside the entries that it is to have; nothing where it is to have none.

    ``{**{}, "shuffle": False}``
    """
    named = {edit.name: edit.code for edit in edits if edit.how is How.ENTRY}
    said = ", ".join(f'"{name}": {named[name]}' for name in sorted(named))
    return (f"{{**{{}}, {said}}}",) if said else ()


def quoted_for(code: str, quote: str) -> str:
    """``code`` fit for an f-string: before Python 3.12 it must not hold that one's quotes."""
    other = "'" if quote == '"' else '"'
    return code.replace(quote, other) if len(quote) == 1 and other not in code else code


def replaced(
    node: cst.BaseExpression, code: str, old: cst.CSTNode, parent: cst.CSTNode, is_tight: bool
) -> cst.BaseExpression:
    """``node`` (what became of ``old``) under ``code``, fit for its place in ``parent``."""
    own = 1 if isinstance(node, cst.Tuple | cst.GeneratorExp) and node.lpar else 0
    outer = len(node.lpar) - own
    core = node.with_changes(lpar=node.lpar[outer:], rpar=node.rpar[: len(node.rpar) - outer])
    pattern = template(code)
    if outer == 1 and not is_tight and _is_bare_call(pattern):
        return _moved_into(pattern, core, node.lpar[0], node.rpar[-1])
    new = fill(pattern, core)
    needed = required(parent, old)
    if not outer:
        return parenthesized(new) if is_tight or level(new) < needed else new
    if not is_tight and level(core) < needed <= level(new) and not _spans_lines(node):
        return new
    return new.with_changes(
        lpar=(*node.lpar[:outer], *new.lpar), rpar=(*new.rpar, *node.rpar[-outer:])
    )


def fill(pattern: cst.BaseExpression, core: cst.BaseExpression) -> cst.BaseExpression:
    """The pattern with ``core`` in its holes."""
    if isinstance(pattern, cst.Name) and pattern.value == HOLE:
        return core
    if _is_bare_call(pattern) and isinstance(core, cst.GeneratorExp) and not core.lpar:
        return pattern.with_deep_changes(_hole(pattern), value=core)
    filled = pattern.visit(Filler(core))
    assert isinstance(filled, cst.BaseExpression)
    return filled


class Filler(cst.CSTTransformer):
    """Puts a node into the holes of a pattern."""

    def __init__(self, core: cst.BaseExpression) -> None:
        super().__init__()
        self._core = core
        self._parents: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._parents.append(node)
        return True

    def on_leave(  # type: ignore[override]  # one node in, one node out
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        self._parents.pop()
        if isinstance(original_node, cst.SimpleString | cst.FormattedStringText):
            return updated_node.with_changes(value=original_node.value.replace(HOLE, "{}"))
        if not isinstance(original_node, cst.Name) or original_node.value != HOLE:
            return updated_node
        needed = required(self._parents[-1], original_node)
        return parenthesized(self._core) if level(self._core) < needed else self._core


def level(node: cst.BaseExpression) -> int:
    """How tightly the outermost operator of ``node`` binds."""
    if node.lpar:
        return _ATOM
    return _operator_level(node)


def _operator_level(node: cst.CSTNode) -> int:
    kind: cst.CSTNode = node
    if isinstance(node, cst.BinaryOperation | cst.BooleanOperation | cst.UnaryOperation):
        kind = node.operator
    return next((value for kinds, value in _LEVELS if isinstance(kind, kinds)), _ATOM)


def required(parent: cst.CSTNode, child: cst.CSTNode) -> int:
    """The lowest level that needs no parentheses as this child of ``parent``."""
    if isinstance(parent, _PRIMARY):
        return _ATOM
    if isinstance(parent, cst.UnaryOperation):
        return _operator_level(parent)
    if isinstance(parent, cst.BinaryOperation | cst.BooleanOperation):
        is_left = parent.left is child and not isinstance(parent.operator, cst.Power)
        return _operator_level(parent) + (0 if is_left else 1)
    if isinstance(parent, _OPERANDS):
        return _COMPARISON + 1
    if isinstance(parent, _CONDITIONS):
        return _CONDITIONAL + 1
    target = isinstance(parent, cst.For) and parent.target is child
    return _OPEN if target or isinstance(parent, _STATEMENTS) else _LAMBDA


def parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """``node`` in one more pair."""
    return node.with_changes(
        lpar=(cst.LeftParen(), *node.lpar), rpar=(*node.rpar, cst.RightParen())
    )


def _is_bare_call(pattern: cst.BaseExpression) -> bool:
    """``f({})`` and nothing else."""
    if not isinstance(pattern, cst.Call) or len(pattern.args) != 1:
        return False
    arg, value = pattern.args[0], pattern.args[0].value
    return not arg.star and not arg.keyword and isinstance(value, cst.Name) and value.value == HOLE


def _hole(pattern: cst.BaseExpression) -> cst.CSTNode:
    assert isinstance(pattern, cst.Call)
    return pattern.args[0]


def _moved_into(
    pattern: cst.BaseExpression,
    core: cst.BaseExpression,
    left: cst.LeftParen,
    right: cst.RightParen,
) -> cst.BaseExpression:
    """The call with the parentheses that stood around ``core`` as its own."""
    needs_own = level(core) < _LAMBDA
    arg = cst.Arg(parenthesized(core) if needs_own else core)
    arg = arg.with_changes(whitespace_after_arg=right.whitespace_before)
    return pattern.with_changes(args=(arg,), whitespace_before_args=left.whitespace_after)


def _spans_lines(node: cst.BaseExpression) -> bool:
    return "\n" in cst.Module(body=()).code_for_node(node)
