"""How a file is laid out, and libcst code that fits in: indentation, line ends, width.

Fragments are written with four spaces and ``\\n``; here they take on the file's own ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import libcst as cst

from ddpify.rewrite.errors import CodeError

Statement: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement

_TAB = 4


@dataclass(frozen=True)
class Style:
    """The project's own ``[tool.black]``, or a file's ways, as far as they matter for new code."""

    line_length: int = 88
    skip_string_normalization: bool = False
    fills_lines: bool = False  # instead of one item to a line, as black has it

    @classmethod
    def of(cls, line_length: int | None) -> Style:
        """For a project that has a line length, or None."""
        return cls(line_length or cls.line_length, True, fills_lines=line_length is None)


@dataclass(frozen=True)
class Layout:
    """Of one file."""

    unit: str
    newline: str
    style: Style = field(default_factory=Style)

    @classmethod
    def of(cls, module: cst.Module, style: Style) -> Layout:
        """What the file uses itself, as libcst found it."""
        indent = module.default_indent
        return cls(indent if not indent.strip(" \t") else " " * 4, module.default_newline, style)

    @property
    def fills_lines(self) -> bool:
        """Whether long lines are broken where they are: alignment is counted in spaces."""
        return self.style.fills_lines and self.unit == " " * _TAB

    def room(self, indent: str, levels: int = 0) -> int:
        """Columns left for code at this indentation."""
        return max(self.style.line_length - columns(indent) - levels * columns(self.unit), 20)

    def parse(self, text: str) -> tuple[Statement, ...]:
        """Statements of ``text`` (``\\n``, four spaces), ready for this file."""
        module = cst.parse_module(text.replace("\n", self.newline))
        if not module.body:
            raise CodeError(f"no statement in {text.strip()!r}")
        body = [inner(_Fit(self.unit), statement) for statement in module.body]
        body[0] = with_lead(body[0], (*module.header, *body[0].leading_lines))
        return tuple(body)


def columns(indent: str) -> int:
    """Width of leading white space."""
    return len(indent.expandtabs(_TAB))


def inner(transformer: cst.CSTTransformer, statement: Statement) -> Statement:
    """``statement`` transformed by something that keeps it a statement."""
    changed = statement.visit(transformer)
    assert isinstance(changed, Statement)
    return changed


def with_lead(statement: Statement, lines: Sequence[cst.EmptyLine]) -> Statement:
    """``statement`` under other blank lines and comments."""
    return statement.with_changes(leading_lines=tuple(lines))


def is_blank(line: cst.EmptyLine) -> bool:
    """No comment on it."""
    return line.comment is None


class Unblank(cst.CSTTransformer):
    """Keeps blank lines blank when code moves to the right."""

    def leave_EmptyLine(
        self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine
    ) -> cst.EmptyLine:
        if is_blank(updated_node) and not updated_node.whitespace.value:
            return updated_node.with_changes(indent=False)
        return updated_node


class _Fit(Unblank):
    """Continuation lines in the file's unit of indentation."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def leave_ParenthesizedWhitespace(
        self,
        original_node: cst.ParenthesizedWhitespace,
        updated_node: cst.ParenthesizedWhitespace,
    ) -> cst.ParenthesizedWhitespace:
        last = updated_node.last_line
        lines = [
            line.with_changes(whitespace=self._convert(line.whitespace))
            for line in updated_node.empty_lines
        ]
        return updated_node.with_changes(empty_lines=lines, last_line=self._convert(last))

    def _convert(self, space: cst.SimpleWhitespace) -> cst.SimpleWhitespace:
        rest = space.value.lstrip(" ")
        levels, spaces = divmod(len(space.value) - len(rest), 4)
        return space.with_changes(value=self._unit * levels + " " * spaces + rest)
