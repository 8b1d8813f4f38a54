"""Turn a plan into new file contents: the only part that understands text.

One libcst pass per file. What no edit addresses stays as it is, byte for byte, and every
new text is compiled before anybody may write it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import libcst as cst

from ddpify.plan import Change, Plan, PlannedEdit
from ddpify.rewrite.errors import CodeError, ReadOnlySource, RewriteError
from ddpify.rewrite.files import changed_text, new_file
from ddpify.rewrite.imports import plan_imports, respelled
from ddpify.rewrite.layout import Layout, Style
from ddpify.rewrite.legacy import parsed
from ddpify.rewrite.locate import locate
from ddpify.rewrite.transformer import Rewriter
from ddpify.rewrite.wrapping import sets_one_item_a_line
from ddpify.rules.base import How
from ddpify.source import Source

WIDEST = 120

__all__ = ["ReadOnlySource", "RewriteError", "Style", "render"]


def render(
    plan: Plan, sources: Mapping[str, Source], style: Style | None = None
) -> tuple[Change, ...]:
    """The files that the plan changes, in order of their paths.

    Raises:
        ReadOnlySource: a file cannot be rewritten without loss.
        RewriteError: an edit cannot be carried out, or the result is not valid Python.
    """
    return tuple(_changes(plan, sources, style or Style()))


def _changes(plan: Plan, sources: Mapping[str, Source], style: Style) -> Iterator[Change]:
    ordered = sorted(plan.edits, key=lambda one: one.edit.site.path)
    for path, group in groupby(ordered, key=lambda one: one.edit.site.path):
        planned = tuple(group)
        change = _change(path, planned, sources.get(path), style)
        if change is not None:
            if path.endswith(".py"):
                _check(change, planned, sources.get(path))
            yield change


def _change(
    path: str, planned: tuple[PlannedEdit, ...], source: Source | None, style: Style
) -> Change | None:
    hows = {one.edit.how for one in planned}
    if hows == {How.NEW_FILE} and len(planned) == 1:
        return new_file(path, planned, source, style)
    if source is None:
        raise RewriteError(path, _rules(planned), "there is no such file to edit")
    if hows & {How.NEW_FILE, How.TEXT}:
        if hows != {How.TEXT}:
            raise RewriteError(path, _rules(planned), "edits of different kinds of files")
        text = changed_text(source, planned)
    else:
        text = _rewritten(source, planned, style)
    try:
        after = source.encode(text)
    except UnicodeEncodeError as error:
        why = f"the new code cannot be written in {source.encoding}"
        raise RewriteError(path, _rules(planned), why) from error
    return None if after == source.raw else Change(path, source.raw, after, planned)


def _rewritten(source: Source, planned: Sequence[PlannedEdit], style: Style) -> str:
    module = _parse(source)
    try:
        imports = plan_imports(source, planned)
        spelled = [replace(one, edit=respelled(one.edit, imports.spelling)) for one in planned]
        located = locate(module, source, spelled)
        rewriter = Rewriter(located, Layout.of(module, _fitting(style, source)), imports, module)
        return module.visit(rewriter).code
    except (CodeError, cst.CSTValidationError, cst.ParserSyntaxError) as error:
        raise RewriteError(source.path, _rules(planned), str(error)) from error


def _fitting(style: Style, source: Source) -> Style:
    """A file that is written wider than the project's line length stays as wide."""
    longest = max(map(len, source.lines), default=0)
    fills = style.fills_lines and not sets_one_item_a_line(source.text)
    wide = max(style.line_length, min(longest, WIDEST))
    return replace(style, line_length=wide, fills_lines=fills)


def _parse(source: Source) -> cst.Module:
    """The lossless tree. Raises ReadOnlySource."""
    try:
        module = parsed(source)
    except cst.ParserSyntaxError as error:
        why = f"libcst cannot parse line {error.raw_line}"
        raise ReadOnlySource(source.path, why) from error
    if module.code != source.text or source.encode(source.text) != source.raw:
        why = "unusual white space or line ends would not survive"
        raise ReadOnlySource(source.path, why)
    return module


def _check(change: Change, planned: Sequence[PlannedEdit], old: Source | None) -> None:
    """The new text is valid Python, unless the old one was not either."""
    error = _compile_error(change.after, change.path)
    if error is None:
        return
    if old is not None and _compile_error(old.raw, change.path) is not None:
        raise ReadOnlySource(change.path, "it does not compile as it is")
    raise RewriteError(change.path, _rules(planned), f"the result is not valid ({error})")


def _compile_error(raw: bytes, path: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(raw, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return str(error)
    return None


def _rules(planned: Sequence[PlannedEdit]) -> tuple[str, ...]:
    return tuple(sorted({one.rule for one in planned}))
