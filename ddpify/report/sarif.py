"""Findings as SARIF 2.1.0, for code scanning and editors.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ddpify import __version__
from ddpify.checking.causes import FindingCause
from ddpify.checking.model import Checked
from ddpify.links import SITE, rule_page
from ddpify.notebooks import cell_of
from ddpify.plan import Change
from ddpify.report.fingerprints import fingerprints
from ddpify.report.place import in_file, said
from ddpify.report.replacements import replacements
from ddpify.report.rule import page, source
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.site import Site, Span

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_BASE = "SRCROOT"

Fixes = Callable[[Sequence[Finding]], Sequence[Change]]


def render(checked: Checked, rules: Sequence[Rule], fixes: Fixes) -> str:
    """The whole document; ``rules`` are all, ``fixes`` says what fixing some findings changes."""
    used = {one.rule for one in checked.findings}
    described = [rule for rule in rules if rule.id in used]
    index = {rule.id: number for number, rule in enumerate(described)}
    marks = dict(zip(checked.findings, fingerprints(checked), strict=True))
    run = {
        "tool": {"driver": _driver(described)},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_BASE: {"uri": f"{Path.cwd().as_uri()}/"}},
        "results": [_result(one, index, marks[one.first], fixes) for one in checked.causes],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _driver(rules: Sequence[Rule]) -> dict[str, Any]:
    return {
        "name": "ddpify",
        "semanticVersion": __version__,
        "informationUri": SITE,
        "rules": [_rule(rule) for rule in rules],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.name.replace("-", " ")},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\nSource: {source(rule)}", "markdown": page(rule)},
        "helpUri": rule_page(rule.id),
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": ["distributed-training"]},
    }


def _result(
    cause: FindingCause, index: dict[str, int], fingerprint: str, fixes: Fixes
) -> dict[str, Any]:
    found = cause.first
    also = f"Also in {cause.elsewhere}." if cause.others else ""
    message = f"{said(found.site, found.message)}. {found.advice}".rstrip(". ")
    result: dict[str, Any] = {
        "ruleId": found.rule,
        "level": _LEVELS[found.severity],
        "message": {"text": f"{message}. {also}" if also else message},
        "locations": [_location(found.site)],
        "partialFingerprints": {"ddpify/v1": fingerprint},
    }
    if found.rule in index:
        result["ruleIndex"] = index[found.rule]
    hops = (*found.way, *found.because)
    related = [*hops, *((one.site, "here, too") for one in cause.others)]
    if related:
        result["relatedLocations"] = [
            {"id": number, **_location(site, why)} for number, (site, why) in enumerate(related, 1)
        ]
    if hops:
        result["codeFlows"] = [_flow(found)]
    changes = fixes(cause.all) if found.fix else ()
    if changes and all(change.before is not None for change in changes):
        result["fixes"] = [_fix(found, changes)]
    return result


def _flow(found: Finding) -> dict[str, Any]:
    """The hops that prove it, and where they lead."""
    steps = [*found.way, *found.because, (found.site, found.message)]
    return {"threadFlows": [{"locations": [{"location": _location(*step)} for step in steps]}]}


def _location(site: Site, message: str = "") -> dict[str, Any]:
    place = {"artifactLocation": _artifact(site.path), "region": _region(in_file(site))}
    told = {"message": {"text": said(site, message)}} if message else {}
    return {"physicalLocation": place, **told}


def _artifact(path: str) -> dict[str, str]:
    path, _ = cell_of(path)
    if Path(path).is_absolute():
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(os.fsencode(path)), "uriBaseId": _BASE}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column + 1,
        "endLine": span.end_line,
        "endColumn": span.end_column + 1,
    }


def _fix(found: Finding, changes: Sequence[Change]) -> dict[str, Any]:
    return {
        "description": {"text": found.advice or f"fix {found.rule}"},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(change.path),
                "replacements": [
                    {"deletedRegion": _region(span), "insertedContent": {"text": text}}
                    for span, text in replacements(change)
                ],
            }
            for change in changes
        ],
    }
