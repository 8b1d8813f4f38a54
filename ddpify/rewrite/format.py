"""Black for the code we write, and only for that.

``black --line-ranges`` changes lines outside its range, so a statement is formatted alone
and put back as a tree; the text around it is never handed to black.
"""

from __future__ import annotations

from collections.abc import Callable

import black
import libcst as cst
from black.parsing import InvalidInput

from ddpify.rewrite.errors import CodeError
from ddpify.rewrite.layout import Layout, Statement, Style, columns, with_lead
from ddpify.rewrite.wrapping import wrapped

_ENDLESS = 10_000


def new_statements(code: str, layout: Layout, width: int) -> tuple[Statement, ...]:
    """The statements of an edit, formatted."""
    normalize = not layout.style.skip_string_normalization
    if layout.fills_lines:
        filled = wrapped(
            _black(code, _ENDLESS, normalize), lambda line: columns(line) > width, width
        )
        if filled is not None:
            return layout.parse(filled)
    return layout.parse(_black(code, width, normalize))


def new_block(head: str, layout: Layout, width: int) -> cst.BaseCompoundStatement:
    """The statement that ``head`` (``if …:``, ``with …:``) opens, to be given its body."""
    statements = new_statements(f"{head}\n    pass\n", layout, width)
    if len(statements) != 1 or not isinstance(statements[0], cst.If | cst.With | cst.For):
        raise CodeError(f"not the head of a block: {head!r}")
    return statements[0]


def refit(before: Statement, after: Statement, layout: Layout, width: int) -> Statement:
    """``after`` formatted if the edit made a line too long, or a call of several lines is not laid
    out as black would any more, as it was; otherwise as it is."""
    if isinstance(after, cst.Try | cst.TryStar | cst.Match):
        return after
    old, new = _text(before), _text(after)
    has_grown = _growth(old, new, width)
    is_long = any(map(has_grown, new.splitlines()))
    try:
        if not is_long and not _is_blacks(old, width):
            return after
        text = wrapped(new, has_grown, width) if is_long and layout.fills_lines else None
        text = text or _black(new, width, normalize=False)
    except CodeError:
        return after
    (formatted,) = layout.parse(text)
    return _like(formatted, after)


def _is_blacks(text: str, width: int) -> bool:
    """Whether black leaves a statement of several lines as it is."""
    return "\n" in text.strip("\n") and _black(text, width, normalize=False) == text


def _growth(old: str, new: str, width: int) -> Callable[[str], bool]:
    """Whether a changed line is over the width and longer than any it took the place of."""
    before, after = old.splitlines(), new.splitlines()
    longest = max((columns(line) for line in before if line not in after), default=0)
    limit = max(width, longest)
    return lambda line: columns(line) > limit and line not in before


def _text(statement: Statement) -> str:
    """Of a simple statement all, of a compound one its head."""
    bare = with_lead(statement, ())
    if isinstance(bare, cst.BaseCompoundStatement):
        bare = bare.with_changes(**_without_parts(bare))
    return cst.Module(body=(bare,)).code.replace("\r\n", "\n")


def _without_parts(statement: cst.BaseCompoundStatement) -> dict[str, object]:
    """Body and following clauses of a compound statement, emptied."""
    empty = cst.IndentedBlock(body=(cst.SimpleStatementLine(body=(cst.Pass(),)),))
    parts: dict[str, object] = {"body": empty}
    if isinstance(statement, cst.If | cst.For | cst.While):
        parts["orelse"] = None
    return parts


def _like(formatted: Statement, after: Statement) -> Statement:
    """The formatted statement with what was held back."""
    if isinstance(after, cst.BaseCompoundStatement):
        parts = {name: getattr(after, name) for name in _without_parts(after)}
        formatted = formatted.with_changes(**parts)
    return with_lead(formatted, after.leading_lines)


def whole(code: str, style: Style) -> str:
    """A file that is new, as black lays it out in this project."""
    return _black(code, style.line_length, not style.skip_string_normalization)


def _black(code: str, width: int, normalize: bool) -> str:
    mode = black.Mode(line_length=width, string_normalization=normalize)
    try:
        return black.format_str(code, mode=mode)
    except InvalidInput as error:
        raise CodeError(f"not valid code: {code.strip()!r}") from error
