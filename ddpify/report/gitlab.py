"""Findings as GitLab's code quality report.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ddpify.checking.model import Checked
from ddpify.report.fingerprints import fingerprints
from ddpify.rules.base import Finding, Severity

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.NOTE: "info"}


def render(checked: Checked) -> str:
    """The whole document."""
    marks = fingerprints(checked)
    issues = [_issue(one, mark) for one, mark in zip(checked.findings, marks, strict=True)]
    return json.dumps(issues, indent=2, ensure_ascii=False) + "\n"


def _issue(found: Finding, fingerprint: str) -> dict[str, object]:
    span = found.site.span
    return {
        "description": f"{found.rule}: {found.message}",
        "check_name": found.rule,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[found.severity],
        "location": {
            "path": _path(found.site.path),
            "positions": {
                "begin": {"line": span.line, "column": span.column + 1},
                "end": {"line": span.end_line, "column": span.end_column + 1},
            },
        },
    }


def _path(path: str) -> str:
    """As GitLab wants it: from the top of the repository."""
    top = os.environ.get("CI_PROJECT_DIR")
    file = Path(path).absolute()
    if top and file.is_relative_to(top):
        return file.relative_to(top).as_posix()
    return path
