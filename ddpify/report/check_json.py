"""What ``check`` found as JSON, for programs.

``schema`` grows when a key changes its meaning or goes; new keys do not change it.
"""

from __future__ import annotations

import json
from typing import Any

from ddpify.checking.model import Checked
from ddpify.rules.base import Finding
from ddpify.site import Site


def render(checked: Checked) -> str:
    """The whole document."""
    document = {
        "schema": 2,
        "files": checked.files,
        "fixed": checked.fixed,
        "findings": [_finding(one, checked) for one in checked.findings],
        "notes": [{"message": one} for one in checked.unread],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _finding(found: Finding, checked: Checked) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "name": checked.name(found.rule),
        "severity": found.severity.value,
        **_place(found.site),
        "message": found.message,
        "fixable": bool(found.fix),
        "safe": checked.safe(found),
        "advice": found.advice,
        "because": [{**_place(site), "message": why} for site, why in found.because],
    }


def _place(site: Site) -> dict[str, Any]:
    """Lines and columns from 1, as editors count."""
    span = site.span
    return {
        "path": site.path,
        "line": span.line,
        "column": span.column + 1,
        "end_line": span.end_line,
        "end_column": span.end_column + 1,
    }
