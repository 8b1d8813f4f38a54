"""Text edits applied to a script, the plain way: the writer of the tests."""

from __future__ import annotations

import re

from ddpify.launchers import findings
from tests.launchers.cases import Case


def migrated(case: Case, text: str) -> str:
    """``text`` with the fixes of all findings."""
    found = findings(case.path, text, case.entries, files=case.files)
    starts = (0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text)))
    edits = set()
    for edit in (edit for finding in found for edit in finding.fix):
        span = edit.site.span
        start = starts[span.line - 1] + span.column
        edits.add((start, starts[span.end_line - 1] + span.end_column, edit.code))
    for start, end, code in sorted(edits, reverse=True):
        text = text[:start] + code + text[end:]
    return text
