"""Names of findings that stay when lines move: rule, file, text of the line, and its number."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from ddpify.checking.model import Checked
from ddpify.report.frames import Lines


def fingerprints(checked: Checked) -> list[str]:
    """One for each finding, all different."""
    lines = Lines(checked.texts or {})
    seen: Counter[tuple[str, ...]] = Counter()
    found = []
    for one in checked.findings:
        text = lines.of(one.site.path)[one.site.span.line - 1 : one.site.span.line]
        key = (one.rule, one.site.path, *(line.strip() for line in text))
        parts = "\0".join((*key, str(seen[key])))
        seen[key] += 1
        found.append(blake2b(parts.encode("utf-8", "replace"), digest_size=16).hexdigest())
    return found
