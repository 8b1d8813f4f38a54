"""Findings in the types of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lsprotocol import types
from pygls import uris
from pygls.workspace import PositionCodec

from ddpify.checking.catalogue import catalogue
from ddpify.checking.codes import UNUSED
from ddpify.links import rule_page
from ddpify.report.rule import page
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.site import Site, Span

_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
Lines = Callable[[Path], Sequence[str]]


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by their codes."""
    return {rule.id: rule for rule in catalogue()}


@dataclass(frozen=True)
class EditorPlaces:
    """Places of a project as the editor counts them; ``lines`` gives those of a file."""

    codec: PositionCodec
    lines: Lines

    def range(self, file: Path, span: Span) -> types.Range:
        """A span, which counts characters, in the client's units."""
        lines = self.lines(file)
        return types.Range(
            self._position(lines, span.line, span.column),
            self._position(lines, span.end_line, span.end_column),
        )

    def marked(self, file: Path, span: Span) -> types.Range:
        """What is underlined: of a statement of several lines the first, of no place its line."""
        lines = self.lines(file)
        text = lines[span.line - 1] if 0 < span.line <= len(lines) else ""
        if span.end_line > span.line or span.end_column <= span.column:
            span = Span(span.line, span.column, span.line, max(len(text.rstrip()), span.column))
        return self.range(file, span)

    def location(self, site: Site) -> types.Location:
        """A place in whatever file."""
        file = Path(site.path).absolute()
        return types.Location(uris.from_fs_path(str(file)) or "", self.marked(file, site.span))

    def _position(self, lines: Sequence[str], line: int, column: int) -> types.Position:
        text = lines[line - 1][:column] if 0 < line <= len(lines) else ""
        return types.Position(max(0, line - 1), self.codec.client_num_units(text))


def diagnostic(found: Finding, file: Path, places: EditorPlaces) -> types.Diagnostic:
    """A finding: with the proof as related places, and the page of its rule."""
    rule = rules().get(found.rule)
    hops = [
        types.DiagnosticRelatedInformation(places.location(site), why)
        for site, why in (*found.way, *found.because)
    ]
    return types.Diagnostic(
        range=places.marked(file, found.site.span),
        message="\n".join(part for part in (found.message, found.advice) if part),
        severity=_SEVERITIES[found.severity],
        code=found.rule,
        code_description=types.CodeDescription(rule_page(rule.id)) if rule is not None else None,
        source="ddpify",
        related_information=hops or None,
        tags=[types.DiagnosticTag.Unnecessary] if found.rule == UNUSED else None,
    )


def hover(found: Sequence[Finding], range_: types.Range) -> types.Hover:
    """What the rules say of themselves."""
    pages = [page(rules()[code]) for code in dict.fromkeys(one.rule for one in found)]
    content = types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(pages))
    return types.Hover(content, range_)
