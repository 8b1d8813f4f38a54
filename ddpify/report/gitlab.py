"""Findings as GitLab's code quality report.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format

One issue for each place: it is by them that a merge request is compared with its target.
"""

from __future__ import annotations

import json

from ddpify.checking.model import Checked
from ddpify.report.fingerprints import fingerprints
from ddpify.report.place import from_top, in_file, said
from ddpify.rules.base import Finding, Severity

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.NOTE: "info"}


def render(checked: Checked) -> str:
    """The whole document."""
    marks = fingerprints(checked)
    issues = [_issue(one, mark) for one, mark in zip(checked.findings, marks, strict=True)]
    return json.dumps(issues, indent=2, ensure_ascii=False) + "\n"


def _issue(found: Finding, fingerprint: str) -> dict[str, object]:
    span = in_file(found.site)
    return {
        "description": f"{found.rule}: {said(found.site, found.message)}",
        "check_name": found.rule,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[found.severity],
        "location": {
            "path": from_top(found.site.path, "CI_PROJECT_DIR"),
            "positions": {
                "begin": {"line": span.line, "column": span.column + 1},
                "end": {"line": span.end_line, "column": span.end_column + 1},
            },
        },
    }
