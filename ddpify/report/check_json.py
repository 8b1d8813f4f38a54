"""What ``check`` found as JSON, for programs.

``schema`` grows when a key changes its meaning or goes; new keys do not change it.
"""

from __future__ import annotations

import json
from typing import Any

from ddpify.checking.model import Checked
from ddpify.report.place import place
from ddpify.rules.base import Finding


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
        **place(found.site),
        "message": found.message,
        "fixable": bool(found.fix),
        "safe": checked.safe(found),
        "advice": found.advice,
        "because": [{**place(site), "message": why} for site, why in found.because],
    }
