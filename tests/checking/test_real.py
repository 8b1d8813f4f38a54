"""The tool with the real linter, over the labelled suite: formats, fixes, comments."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import jsonschema
import pytest

from ddpify import cli
from tests.lint.cases import Case, all_cases
from tests.report.sarif import SCHEMA


def bad_cases() -> Iterator[Case]:
    """Of each rule the first program in which it is to be found."""
    seen: set[frozenset[str]] = set()
    for case in all_cases():
        new = {mark.codes for mark in case.marks()} - seen
        if new:
            seen |= new
            yield case


@pytest.fixture(params=[pytest.param(case, id=case.name) for case in bad_cases()])
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A wrong program in the current folder."""
    found: Case = request.param
    found.put(tmp_path)
    monkeypatch.chdir(tmp_path)
    return found


ALL = ("--extend-select", "ALL")  # some are off


class Runs:
    """``ddpify check`` in this process, and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *flags: str) -> str:
        """Its output; never an error."""
        code = cli.main(["check", "--no-cache", *ALL, *flags])
        shown = self._capsys.readouterr()
        assert code in (0, 1), shown.err
        return shown.out

    def found(self, *flags: str) -> list[tuple[str, str, int]]:
        """Rule and place of each finding, its further places included."""
        document = json.loads(self("--output-format", "json", *flags))
        return [
            (one["rule"], place["path"], place["line"])
            for one in document["findings"]
            for place in (one, *one["also"])
        ]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runs:
    """Runs the command in the current folder."""
    return Runs(capsys)


def test_marked_lines_are_printed_and_sarif_says_the_same(case: Case, run: Runs) -> None:
    found = run.found()
    for mark in case.marks():
        places = {rule for rule, path, line in found if (path, line) == (mark.path, mark.line)}
        assert places & mark.codes
    document = json.loads(run("--output-format", "sarif"))
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    results = document["runs"][0]["results"]
    told = [
        (one["ruleId"], place["physicalLocation"]["region"]["startLine"])
        for one in results
        for place in (*one["locations"], *further(one))
    ]
    assert told == [(rule, line) for rule, _, line in found]


def further(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The places of one result of which the same is said."""
    related = result.get("relatedLocations", [])
    return [one for one in related if one["message"]["text"] == "here, too"]


def test_fixes_leave_valid_programs_without_what_they_fix(
    case: Case, run: Runs, tmp_path: Path
) -> None:
    before = run.found()
    after = run.found("--fix", "--unsafe-fixes")
    assert len(after) <= len(before)
    assert {rule for rule, *_ in after} <= {rule for rule, *_ in before}
    for file in tmp_path.rglob("*.py"):
        compile(file.read_bytes(), str(file), "exec")
    assert run("--diff", "--unsafe-fixes") == ""


def test_silenced_once_and_for_all(case: Case, run: Runs) -> None:
    """The comments that --add-noqa writes leave nothing, themselves included."""
    run("--add-noqa")
    assert [path for _, path, _ in run.found() if path.endswith(".py")] == []


ALONE = """\
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def odd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs whose names are no text."""
    monkeypatch.chdir(tmp_path)
    for name in (b"bad\xff.py", b"ctl\x01.py"):
        Path(os.fsdecode(name)).write_text(ALONE)
    return tmp_path


@pytest.mark.parametrize("form", ["json", "sarif", "github", "gitlab", "junit"])
def test_reports_are_text_whatever_the_names(odd_names: Path, run: Runs, form: str) -> None:
    printed = run("--output-format", form)
    run("--output-format", form, "-o", "report")
    written = (odd_names / "report").read_text("utf-8")
    assert written == printed
    assert written.count("DDP801") >= 2
    if form == "junit":
        assert [one.get("file") for one in xml.fromstring(written)[0]] == [
            "bad\ufffd.py",
            "ctl\ufffd.py",
        ]
    elif form == "sarif":
        assert '"uri": "bad%FF.py"' in written
    elif form != "github":
        assert "bad\ufffd.py" in written
        json.loads(written)


def test_text_in_a_file_has_the_names_as_they_are(odd_names: Path, run: Runs) -> None:
    run("-o", "report")
    assert b"bad\xff.py:5:5: error DDP801 " in (odd_names / "report").read_bytes()
