"""How often each rule is broken."""

from __future__ import annotations

import json
from collections import Counter

from ddpify.checking.model import Checked


def render(checked: Checked) -> str:
    """Count, code, whether there is a safe fix, and name; the most frequent first."""
    rows = _rows(checked)
    if not rows:
        return ""
    width = len(str(rows[0][1]))
    starred = any(safe for *_, safe in rows)
    lines = []
    for code, count, safe in rows:
        star = f"\t[{'*' if safe else ' '}]" if starred else ""
        lines.append(f"{count:>{width}}\t{code}{star}\t{checked.name(code)}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def render_json(checked: Checked) -> str:
    """The same for programs; ``schema`` grows when a key changes its meaning or goes."""
    rows = [
        {"code": code, "name": checked.name(code), "count": count, "fixable": safe}
        for code, count, safe in _rows(checked)
    ]
    return json.dumps({"schema": 1, "rules": rows}, indent=2) + "\n"


def _rows(checked: Checked) -> list[tuple[str, int, bool]]:
    counts = Counter(one.rule for one in checked.findings)
    safe = {one.rule for one in checked.findings if checked.safe(one)}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(code, count, code in safe) for code, count in ordered]
