"""The checks as JUnit test cases, so that parity is a test among others."""

from __future__ import annotations

from xml.etree import ElementTree as xml

from ddpify.verify.report import words
from ddpify.verify.verdict import Cause, Check, Verdict, Verification

_NONCHARACTERS = str.maketrans(dict.fromkeys(map(chr, (0xFFFE, 0xFFFF)), "\ufffd"))


def render(verification: Verification) -> str:
    """The whole document. What is undecided fails: it is no proof."""
    wanting = sum(map(words.wanting, verification.checks))
    numbers = {
        "tests": str(len(verification.checks)),
        "failures": str(wanting),
        "errors": "0",
        "skipped": str(words.count(verification, Verdict.SKIPPED)),
    }
    seconds = verification.reference.seconds + verification.distributed.seconds
    suites = xml.Element("testsuites", {"name": "ddpify", **numbers})
    name = _plain(f"ddpify verify {verification.options.script}")
    suite = xml.SubElement(suites, "testsuite", {"name": name, **numbers, "time": f"{seconds:.3f}"})
    for check in verification.checks:
        _case(suite, check, verification)
    said = xml.SubElement(suite, "system-out")
    said.text = "\n".join(_plain(line) for line in _said(verification))
    xml.indent(suites)
    text = xml.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: xml.Element, check: Check, verification: Verification) -> None:
    script = verification.options.script
    classname = f"ddpify.verify.{script.stem}"
    case = xml.SubElement(
        suite, "testcase", {"classname": _plain(classname), "name": _plain(check.title)}
    )
    if check.verdict is Verdict.SKIPPED:
        xml.SubElement(case, "skipped", {"message": _plain(check.measured)})
    elif words.wanting(check):
        kind = {"type": check.verdict.value, "message": _plain(check.measured)}
        failure = xml.SubElement(case, "failure", kind)
        causes = (_cause(one) for one in verification.causes)
        failure.text = "\n".join(_plain(line) for line in (*check.details, *causes))


def _cause(cause: Cause) -> str:
    return f"Likely cause: {cause.rule} {cause.title}: {cause.evidence}"


def _said(verification: Verification) -> tuple[str, ...]:
    commands = (f"{name}: {command}" for name, command in words.commands(verification))
    return (words.verdict(verification), *words.reasons(verification), *commands)


def _plain(text: str) -> str:
    return words.printable(text).translate(_NONCHARACTERS).encode("utf-8", "replace").decode()
