"""How `ddpify check` says what it found: every format and flag, through the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from tests.checking.conftest import CLEAN, Check, write

TEXT = "import x\nbad()\nslow()\n"


@pytest.fixture(autouse=True)
def _one_file(project: Path) -> None:
    write(project, {"main.py": TEXT})


def test_text(check: Check) -> None:
    assert check().out == (
        "main.py:2:1: error DDP701 bad is called\n"
        "    main.py:1: imported here\n"
        "    call fine, not bad\n"
        "main.py:3:1: warning DDP402 [*] slow is called\n"
        "    call fine, not slow\n"
        "2 findings (1 error, 1 warning) in 1 file.\n"
        "[*] 1 fixable with --fix.\n"
    )


def test_quiet_leaves_the_summary_out(check: Check, project: Path) -> None:
    said = check("-q", "--output-format", "concise")
    assert said.out.splitlines() == [
        "main.py:2:1: error DDP701 bad is called",
        "main.py:3:1: warning DDP402 [*] slow is called",
    ]
    write(project, {"main.py": CLEAN})
    assert check("--quiet").out == ""


def test_show_source(check: Check) -> None:
    said = check("--show-source", "--select", "DDP7").out
    assert " 2 | bad()\n   | ^^^^^\n 3 | slow()\n" in said
    assert "  main.py:1: imported here\n   |\n 1 | import x\n   | ^^^^^^\n" in said


def test_statistics(check: Check) -> None:
    assert check("--statistics").out == (
        "1\tDDP402\t[*]\taccumulation-without-no-sync\n1\tDDP701\t[ ]\tmetric-not-reduced\n"
    )
    document = json.loads(check("--statistics", "--output-format", "json").out)
    assert [one["code"] for one in document["rules"]] == ["DDP402", "DDP701"]


@pytest.mark.parametrize("flag", ["--output-format", "--format"])
def test_json(check: Check, flag: str) -> None:
    said = check(flag, "json")
    assert [one["rule"] for one in json.loads(said.out)["findings"]] == ["DDP701", "DDP402"]
    assert said.code == 1


def test_the_formats_of_services(check: Check) -> None:
    assert check("--output-format", "github").out.count("::error ") == 1
    gitlab = json.loads(check("--output-format", "gitlab").out)
    assert [one["check_name"] for one in gitlab] == ["DDP701", "DDP402"]
    junit = xml.fromstring(check("--output-format", "junit").out)
    assert junit.get("failures") == "2"


def test_sarif_holds_the_fixes(check: Check) -> None:
    (run,) = json.loads(check("--output-format", "sarif").out)["runs"]
    error, warning = run["results"]
    assert "fixes" not in error
    (change,) = warning["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 3, "startColumn": 1, "endLine": 4, "endColumn": 1},
            "insertedContent": {"text": "fine()\n"},
        }
    ]


def test_sarif_of_standard_input(check: Check) -> None:
    (run,) = json.loads(check("--output-format", "sarif", "-", stdin="slow()\n").out)["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == "stdin.py"
    assert result["fixes"]


def test_output_file(check: Check, project: Path) -> None:
    plain = check()
    said = check("--output-file", "reports/check.txt", "--color")
    assert (said.code, said.out, said.err) == (1, "", "")
    assert (project / "reports" / "check.txt").read_text() == plain.out
    said = check("-o", "main.py/x")
    assert said.code == 2
    assert "cannot be written" in said.err


@pytest.mark.parametrize(
    ("flags", "no_color", "terminal", "colored"),
    [
        pytest.param([], "", True, True, id="terminal"),
        pytest.param([], "", False, False, id="pipe"),
        pytest.param([], "1", True, False, id="NO_COLOR"),
        pytest.param(["--color"], "1", False, True, id="flag-on"),
        pytest.param(["--no-color"], "", True, False, id="flag-off"),
        pytest.param(["--color", "--output-format", "concise"], "", False, True, id="concise"),
        pytest.param(["--color", "--show-source"], "", False, True, id="source"),
        pytest.param(["--color", "--diff"], "", False, True, id="diff"),
        pytest.param(["--color", "--output-format", "json"], "", False, False, id="json"),
    ],
)
def test_colour(
    check: Check,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    no_color: str,
    terminal: bool,
    colored: bool,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert ("\x1b[" in check(*flags).out) is colored


def test_every_run_prints_the_same(check: Check, project: Path) -> None:
    write(project, {f"pkg/m{n}.py": TEXT for n in range(5)})
    assert len({check("--no-cache").out for _ in range(3)}) == 1
