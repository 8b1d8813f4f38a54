"""Findings as a JUnit report: a test case each, which fails unless it is a note."""

from __future__ import annotations

import re
from xml.etree import ElementTree as xml

from ddpify.checking.causes import FindingCause
from ddpify.checking.model import Checked
from ddpify.notebooks import cell_of
from ddpify.report.place import in_file
from ddpify.rules.base import Severity

# What XML cannot hold, and the control characters that it should not.
_ILLEGAL = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(checked: Checked) -> str:
    """The whole document. A run without findings is one test that passes."""
    count = len(checked.causes)
    failing = sum(one.first.severity is not Severity.NOTE for one in checked.causes)
    numbers = {"tests": str(max(1, count)), "failures": str(failing), "errors": "0"}
    suites = xml.Element("testsuites", {"name": "ddpify", **numbers})
    suite = xml.SubElement(suites, "testsuite", {"name": "ddpify check", **numbers})
    for cause in checked.causes:
        _case(suite, cause, checked)
    if not count:
        xml.SubElement(suite, "testcase", {"name": "no findings", "classname": "ddpify"})
    xml.indent(suites)
    text = _ILLEGAL.sub("\ufffd", xml.tostring(suites, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: xml.Element, cause: FindingCause, checked: Checked) -> None:
    found = cause.first
    span = found.site.span
    name = f"{found.rule} {checked.name(found.rule)}".rstrip()
    case = xml.SubElement(
        suite,
        "testcase",
        {
            "name": f"{name} ({span.line}:{span.column + 1})",
            "classname": found.site.path.removesuffix(".py").replace("/", "."),
            "file": cell_of(found.site.path)[0],
            "line": str(in_file(found.site).line),
        },
    )
    if found.severity is Severity.NOTE:  # as the exit code has it
        told = xml.SubElement(case, "system-out")
    else:
        attributes = {"type": found.severity.value, "message": found.message}
        told = xml.SubElement(case, "failure", attributes)
    hops = (f"{site}: {why}" for site, why in (*found.way, *found.because))
    also = f"also in {cause.elsewhere}" if cause.others else ""
    place = f"{found.site.path}:{span.line}:{span.column + 1}: {found.rule} {found.message}"
    told.text = "\n".join(part for part in (place, *hops, also, found.advice) if part)
