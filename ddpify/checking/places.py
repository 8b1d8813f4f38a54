"""The order of findings, and how their files are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ddpify.notebooks import cell_of
from ddpify.rules.base import Finding
from ddpify.site import Site


def order(finding: Finding) -> tuple[str, int, int, int, str, str]:
    """By place, then by code."""
    span = finding.site.span
    path, cell = cell_of(finding.site.path)
    return path, cell or 0, span.line, span.column, finding.rule, finding.message


def moved(finding: Finding, path: Callable[[str], str]) -> Finding:
    """The same finding, its files named otherwise."""

    def at(site: Site) -> Site:
        return Site(path(site.path), site.span)

    return replace(
        finding,
        site=at(finding.site),
        fix=tuple(replace(edit, site=at(edit.site)) for edit in finding.fix),
        because=tuple((at(site), why) for site, why in finding.because),
        way=tuple((at(site), why) for site, why in finding.way),
    )
