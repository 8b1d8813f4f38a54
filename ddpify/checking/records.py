"""Findings as plain data and back, for the cache."""

from __future__ import annotations

from typing import Any

from ddpify.rules.base import Edit, Finding, How, Import, Severity
from ddpify.site import Site, Span


def record(finding: Finding) -> list[Any]:
    """Lists and texts only."""
    return [
        finding.rule,
        _place(finding.site),
        finding.message,
        finding.severity.value,
        [_edit(edit) for edit in finding.fix],
        finding.advice,
        _hops(finding.because),
        _hops(finding.way),
    ]


def finding(data: list[Any]) -> Finding:
    """What ``record`` was given. Raises TypeError, ValueError or KeyError on anything else."""
    rule, place, message, severity, fix, advice, because, way = data
    return Finding(
        str(rule),
        _site(place),
        str(message),
        Severity(severity),
        tuple(_read_edit(*one) for one in fix),
        str(advice),
        _read_hops(because),
        way=_read_hops(way),
    )


def _hops(hops: tuple[tuple[Site, str], ...]) -> list[Any]:
    return [[_place(site), why] for site, why in hops]


def _read_hops(hops: list[Any]) -> tuple[tuple[Site, str], ...]:
    return tuple((_site(where), str(why)) for where, why in hops)


def _edit(edit: Edit) -> list[Any]:
    imports = [[one.module, one.name] for one in edit.imports]
    return [edit.how.value, _place(edit.site), edit.code, edit.name, imports]


def _read_edit(how: str, place: list[Any], code: str, name: str, imports: list[Any]) -> Edit:
    return Edit(How(how), _site(place), code, name, tuple(Import(*one) for one in imports))


def _place(site: Site) -> list[Any]:
    span = site.span
    return [site.path, span.line, span.column, span.end_line, span.end_column]


def _site(place: list[Any]) -> Site:
    path, line, column, end_line, end_column = place
    return Site(str(path), Span(int(line), int(column), int(end_line), int(end_column)))
