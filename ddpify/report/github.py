"""Findings as GitHub workflow commands: they become annotations of a pull request.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from ddpify.checking.causes import FindingCause
from ddpify.checking.model import Checked
from ddpify.report.place import from_top, in_file, said
from ddpify.rules.base import Severity

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(checked: Checked) -> str:
    """One command for each finding: of ten a step shows no more."""
    return "".join(f"{_command(one, checked)}\n" for one in checked.causes)


def _command(cause: FindingCause, checked: Checked) -> str:
    found = cause.first
    span = in_file(found.site)
    properties: dict[str, str | int] = {
        "title": f"{found.rule} {checked.name(found.rule)}".rstrip(),
        "file": from_top(found.site.path, "GITHUB_WORKSPACE"),
        "line": span.line,
        "endLine": span.end_line,
    }
    if span.end_line == span.line:  # GitHub takes columns of one line only
        properties |= {"col": span.column + 1, "endColumn": span.end_column + 1}
    listed = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{_LEVELS[found.severity]} {listed}::{_data(_message(cause))}"


def _message(cause: FindingCause) -> str:
    found = cause.first
    told = said(found.site, found.message)
    hops = (f"{site}: {why}" for site, why in (*found.way, *found.because))
    also = f"also in {cause.elsewhere}" if cause.others else ""
    return "\n".join(line for line in (told, *hops, also, found.advice) if line)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
