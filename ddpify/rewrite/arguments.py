"""Set, replace and remove a keyword of a call, and add a name to an import, in its layout.

A list of one item per line gets a line; any other gets `, item`. Trailing commas, closing
brackets and the comments behind items stay with the item they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import libcst as cst

from ddpify.rewrite.errors import CodeError
from ddpify.rewrite.expressions import fill, level, parenthesized, required, template

Space: TypeAlias = cst.BaseParenthesizableWhitespace
_Key: TypeAlias = Callable[[cst.ImportAlias], tuple[int, str]]
Item = TypeVar("Item", cst.Arg, cst.ImportAlias)

_NONE = cst.SimpleWhitespace("")
_ONE = cst.SimpleWhitespace(" ")


def with_argument(call: cst.Call, name: str, code: str) -> cst.Call:
    """``call`` with keyword ``name`` set to ``code``, or without it where that is empty.

    Without a name ``code`` becomes the first argument.
    """
    if not name:
        return _first(call, code)
    found = [index for index, arg in enumerate(call.args) if arg.keyword and _named(arg) == name]
    if found:
        return _without(call, found[0]) if not code else _reset(call, found[0], code)
    if not code:
        raise CodeError(f"there is no keyword {name!r} to remove")
    if "{}" in code:
        raise CodeError(f"there is no keyword {name!r} whose value {code!r} could hold")
    return _inserted(call, _argument(name, template(code)))


def with_names(statement: cst.ImportFrom, names: Sequence[cst.ImportAlias]) -> cst.ImportFrom:
    """``from m import a`` with more names, in order where the names there are in order."""
    assert not isinstance(statement.names, cst.ImportStar)
    items = list(statement.names)
    keys: tuple[_Key, ...] = (_plain, _folded, _kinds)
    key = next((one for one in keys if _is_sorted(items, one)), None)
    before = statement.lpar.whitespace_after if statement.lpar else _NONE
    after = statement.rpar.whitespace_before if statement.rpar else _NONE
    for alias in names:
        index = len(items)
        if key:
            index = sum(key(item) < key(alias) for item in items)
        if index < len(items):
            items = _insert_at(items, index, alias, before)
            continue
        last = items[-1]
        lead = _before(items, len(items) - 1, before)
        separator, after = _split(_closing(last, after), lead)
        had_comma = isinstance(last.comma, cst.Comma)
        items[-1] = last.with_changes(comma=cst.Comma(whitespace_after=separator))
        comma = cst.Comma(whitespace_after=after) if had_comma else cst.MaybeSentinel.DEFAULT
        items.append(alias.with_changes(comma=comma))
    changed = statement.with_changes(names=tuple(items))
    if statement.rpar and not isinstance(items[-1].comma, cst.Comma):
        changed = changed.with_changes(rpar=statement.rpar.with_changes(whitespace_before=after))
    return changed


def alias(name: str, bound: str) -> cst.ImportAlias:
    """``name``, or ``name as bound``."""
    asname = None if name == bound else cst.AsName(cst.Name(bound))
    return cst.ImportAlias(cst.Name(name), asname)


def _named(arg: cst.Arg) -> str:
    return arg.keyword.value if arg.keyword else ""


def _argument(name: str, value: cst.BaseExpression) -> cst.Arg:
    equal = cst.AssignEqual(whitespace_before=_NONE, whitespace_after=_NONE)
    arg = cst.Arg(value, keyword=cst.Name(name), equal=equal)
    if level(value) < required(arg, value):
        return arg.with_changes(value=parenthesized(value))
    return arg


def _reset(call: cst.Call, index: int, code: str) -> cst.Call:
    arg = call.args[index]
    value = fill(template(code), arg.value)
    if level(value) < required(arg, arg.value):
        value = parenthesized(value)
    args = (*call.args[:index], arg.with_changes(value=value), *call.args[index + 1 :])
    return call.with_changes(args=args)


def _inserted(call: cst.Call, new: cst.Arg) -> cst.Call:
    args = [_closed(arg) for arg in call.args] if len(call.args) == 1 else list(call.args)
    if not args:
        return call.with_changes(args=(new,))
    before = call.whitespace_before_args
    index = next((i for i, arg in enumerate(args) if arg.star == "**"), len(args))
    if index < len(args):
        return call.with_changes(args=_insert_at(args, index, new, before))
    last = args[-1]
    closing = _closing(last, last.whitespace_after_arg)
    separator, after = _split(closing, _before(args, len(args) - 1, before))
    args[-1] = last.with_changes(
        comma=cst.Comma(whitespace_after=separator), whitespace_after_arg=_NONE
    )
    if isinstance(last.comma, cst.Comma):
        new = new.with_changes(comma=cst.Comma(whitespace_after=after))
    else:
        new = new.with_changes(whitespace_after_arg=after)
    return call.with_changes(args=(*args, new))


def _first(call: cst.Call, code: str) -> cst.Call:
    new = cst.Arg(template(code))
    args = [_closed(arg) for arg in call.args] if len(call.args) == 1 else list(call.args)
    given = _insert_at(args, 0, new, call.whitespace_before_args) if args else (new,)
    return call.with_changes(args=tuple(given))


def _closed(arg: cst.Arg) -> cst.Arg:
    """A lone generator needs its own parentheses once it has company."""
    if isinstance(arg.value, cst.GeneratorExp) and not arg.value.lpar:
        return arg.with_changes(value=parenthesized(arg.value))
    return arg


def _insert_at(items: Sequence[Item], index: int, new: Item, before: Space) -> list[Item]:
    """``new`` in front of an item; that item's white space is used twice."""
    space = _before(items, index, before)
    again = _bare(space) if isinstance(space, cst.ParenthesizedWhitespace) else _ONE
    new = new.with_changes(comma=cst.Comma(whitespace_after=again))
    result = list(items)
    result.insert(index, new)
    return result


def _before(items: Sequence[cst.Arg | cst.ImportAlias], index: int, first: Space) -> Space:
    """The white space in front of an item."""
    comma = items[index - 1].comma if index else None
    return comma.whitespace_after if isinstance(comma, cst.Comma) else first


def _closing(last: cst.Arg | cst.ImportAlias, space: Space) -> Space:
    """What stands behind the last item: behind its comma, or ``space`` where there is none."""
    return last.comma.whitespace_after if isinstance(last.comma, cst.Comma) else space


def _split(closing: Space, lead: Space) -> tuple[Space, Space]:
    """White space before and after a new last item, given what closed the list so far."""
    if not isinstance(lead, cst.ParenthesizedWhitespace):
        return _ONE, closing
    if not isinstance(closing, cst.ParenthesizedWhitespace):
        return _bare(lead), closing
    separator = lead.with_changes(first_line=closing.first_line, empty_lines=closing.empty_lines)
    return separator, _bare(closing)


def _bare(space: cst.ParenthesizedWhitespace) -> Space:
    """The same line break without comments and blank lines."""
    plain = cst.TrailingWhitespace(newline=space.first_line.newline)
    return space.with_changes(first_line=plain, empty_lines=())


def _without(call: cst.Call, index: int) -> cst.Call:
    args = list(call.args)
    removed = args.pop(index)
    if not args:
        return call.with_changes(args=(), whitespace_before_args=_NONE)
    following = removed.whitespace_after_arg
    if isinstance(removed.comma, cst.Comma):
        following = removed.comma.whitespace_after
    if index == len(args):
        args[-1] = _as_last(args[-1], removed, following)
    elif index:
        previous = args[index - 1]
        assert isinstance(previous.comma, cst.Comma)
        joined = _joined(previous.comma.whitespace_after, following)
        args[index - 1] = previous.with_changes(comma=cst.Comma(whitespace_after=joined))
    return call.with_changes(args=tuple(args))


def _as_last(arg: cst.Arg, removed: cst.Arg, closing: Space) -> cst.Arg:
    """``arg`` with the comma and the line break of the last one, and its own comment."""
    own = arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else _NONE
    if isinstance(own, cst.ParenthesizedWhitespace):
        if isinstance(closing, cst.ParenthesizedWhitespace):
            closing = closing.with_changes(first_line=own.first_line, empty_lines=own.empty_lines)
        elif own.first_line.comment or own.empty_lines:
            closing = own
    if isinstance(removed.comma, cst.Comma):
        return arg.with_changes(comma=removed.comma.with_changes(whitespace_after=closing))
    return arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=closing)


def _joined(before: Space, following: Space) -> Space:
    """White space in front of the argument that now follows."""
    if not isinstance(following, cst.ParenthesizedWhitespace):
        return before
    if not isinstance(before, cst.ParenthesizedWhitespace):
        return _bare(following)
    lines = (*before.empty_lines, *following.empty_lines)
    return before.with_changes(empty_lines=lines)


def _plain(item: cst.ImportAlias) -> tuple[int, str]:
    return 0, _imported(item)


def _folded(item: cst.ImportAlias) -> tuple[int, str]:
    return 0, _imported(item).casefold()


def _kinds(item: cst.ImportAlias) -> tuple[int, str]:
    """As isort: constants, classes, the rest."""
    name = _imported(item)
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


def _imported(item: cst.ImportAlias) -> str:
    return item.evaluated_name


def _is_sorted(items: Sequence[cst.ImportAlias], key: _Key) -> bool:
    keys = [key(item) for item in items]
    return keys == sorted(keys)
