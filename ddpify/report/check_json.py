"""What ``check`` found as JSON, for programs.

``schema`` grows when a key changes its meaning or goes; new keys do not change it. Since 3,
``findings`` has one entry for each cause, and ``also`` its further places.
"""

from __future__ import annotations

import json
from typing import Any

from ddpify.checking.causes import FindingCause
from ddpify.checking.model import Checked
from ddpify.report.place import place
from ddpify.rules.base import Finding
from ddpify.site import Site


def render(checked: Checked) -> str:
    """The whole document."""
    document = {
        "schema": 3,
        "files": checked.files,
        "fixed": checked.fixed,
        "findings": [_finding(one, checked) for one in checked.causes],
        "notes": [{"message": f"not read to its end: {one}"} for one in checked.unread],
        "programs": [
            {"start": one.start, "session": one.session, "opener": one.opener}
            for one in checked.programs
        ],
        "skipped": [{"path": one.path, "why": one.why} for one in checked.skipped],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _finding(cause: FindingCause, checked: Checked) -> dict[str, Any]:
    found = cause.first
    return {
        "rule": found.rule,
        "name": checked.name(found.rule),
        "severity": found.severity.value,
        **place(found.site),
        "message": found.message,
        "fixable": bool(found.fix),
        "safe": checked.safe(found),
        "advice": found.advice,
        "way": _hops(found.way),
        "because": _hops(found.because),
        "also": [_further(one) for one in cause.others],
    }


def _further(one: Finding) -> dict[str, Any]:
    return {**place(one.site), "message": one.message, "way": _hops(one.way)}


def _hops(hops: tuple[tuple[Site, str], ...]) -> list[dict[str, Any]]:
    return [{**place(site), "message": why} for site, why in hops]
