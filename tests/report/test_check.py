"""The formats of `ddpify check`: each says all there is, as its readers expect it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from ddpify.checking.model import Checked
from ddpify.links import rule_page
from ddpify.programs import Program, Skipped
from ddpify.report import check_json, concise, findings, github, gitlab, junit, statistics
from ddpify.rules.base import Severity
from ddpify.source import Site, Span
from tests.report.checked import ALL, HANG, NONE, PRINT, SAVE, put

CONCISE = """\
lib/a b.py:1:1: note DDP501 every rank prints
main.py:5:2: error DDP801 rank 0 enters all_reduce alone: wrong numbers, or a hang
main.py:6:1: warning DDP601 [*] every rank writes 100%, a:b
3 findings (1 error, 1 warning, 1 note) in 2 files.
[*] 1 fixable with --fix.
"""
TEXT = """\
lib/a b.py:1:1: note DDP501 every rank prints
main.py:5:2: error DDP801 rank 0 enters all_reduce alone: wrong numbers, or a hang
    main.py:3: the rank
    lib/a b.py:1: used
    call it on all ranks
main.py:6:1: warning DDP601 [*] every rank writes 100%, a:b
3 findings (1 error, 1 warning, 1 note) in 2 files.
[*] 1 fixable with --fix.
"""
SOURCE = """\
main.py:5:2: error DDP801 rank 0 enters all_reduce alone: wrong numbers, or a hang
   |
 4 | if rank == 0:
 5 |     dist.all_reduce(total)
   |     ^^^^^^^^^^^^^^^^^^^^^^
 6 | torch.save(
   |
  main.py:3: the rank
   |
 3 | rank = dist.get_rank()
   |        ^^^^^^^^^^^^^^^
   |
  lib/a b.py:1: used
   |
 1 | print()
   | ^^^^^^
   |
  = call it on all ranks

main.py:6:1: warning DDP601 [*] every rank writes 100%, a:b
   |
 5 |     dist.all_reduce(total)
 6 | torch.save(
   | ^^^^^^^^^^^
 7 |     model.state_dict(),
   |     ^^^^^^^^^^^^^^^^^^^
 8 |     "ü, 100%.pt",
   |     ^^^^^^^^^^^^^
 9 | )
   | ^
   |

"""


BEGUN = Program("main.py", "main.py:4", "torch.distributed.init_process_group")
LARGE = BEGUN._replace(complete=False, stopped="lib.py:9", missed=("save", "Net.test"))
PART = Program("lib.py:30")
LEFT_OUT = (
    Skipped("a.ipynb", "notebook", "a notebook"),
    Skipped("b.ipynb", "notebook", "a notebook"),
    Skipped("c.py", "file", "a link"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI_PROJECT_DIR", raising=False)
    put(tmp_path)


def test_concise() -> None:
    assert concise.render(ALL) == CONCISE
    assert concise.render(ALL, quiet=True).splitlines() == CONCISE.splitlines()[:3]


def test_text() -> None:
    assert findings.render(ALL) == TEXT


def test_colour_says_the_same() -> None:
    colored = findings.render(ALL, color=True)
    assert f"{_link('DDP801')}\x1b[31m\x1b[1merror DDP801\x1b[0m{_END} rank 0" in colored
    assert f"{_link('DDP601')}\x1b[33m\x1b[1mwarning DDP601\x1b[0m{_END} [*]" in colored
    assert _END not in findings.render(ALL)


_END = "\x1b]8;;\x1b\\"


def _link(code: str) -> str:
    """What a terminal takes for the beginning of a link (OSC 8)."""
    return f"\x1b]8;;{rule_page(code)}\x1b\\"


def test_source_frames() -> None:
    shown = Checked((HANG, SAVE), ALL.rules, 3, True)
    assert findings.render(shown, source=True, quiet=True) == SOURCE


def test_frames_of_files_that_are_gone_or_shorter_are_left_out() -> None:
    Path("main.py").write_text("x\n")
    Path("lib/a b.py").unlink()
    text = findings.render(replace(ALL, texts={"main.py": b"one\n"}), source=True)
    assert "|" not in text
    assert text.count("DDP") == 3


@pytest.mark.parametrize(
    ("checked", "text"),
    [
        pytest.param(
            NONE,
            "No findings: no program here was seen to train with several processes.\n",
            id="none",
        ),
        pytest.param(
            replace(NONE, programs=(BEGUN,)),
            "No findings: 1 program read as several ranks run it.\n",
            id="read",
        ),
        pytest.param(
            replace(NONE, programs=(BEGUN, PART, PART._replace(complete=False))),
            "No findings: 3 programs read as several ranks run them; 1 of them seen to start its"
            " processes. Not read: 1 program to the end (-v lists them).\n",
            id="parts",
        ),
        pytest.param(
            replace(NONE, programs=(PART,), skipped=LEFT_OUT),
            "No findings: 1 program read as several ranks run it; none of it seen to start its"
            " processes. Not read: 1 file, 2 notebooks (-v lists them).\n",
            id="left-out",
        ),
        pytest.param(Checked(), "No findings.\n", id="no-files"),
        pytest.param(
            replace(NONE, fixed=2, programs=(BEGUN, BEGUN._replace(start="test.py"))),
            "Fixed 2 findings.\nNo findings: 2 programs read as several ranks run them.\n",
            id="fixed",
        ),
    ],
)
def test_nothing_found(checked: Checked, text: str) -> None:
    assert concise.render(checked) == findings.render(checked) == text


def test_statistics() -> None:
    many = replace(ALL, findings=(HANG, SAVE, HANG))
    assert statistics.render(many) == (
        "2\tDDP801\t[ ]\tcollective-on-some-ranks\n1\tDDP601\t[*]\tsave-on-every-rank\n"
    )
    assert statistics.render(NONE) == ""
    assert json.loads(statistics.render_json(many))["rules"][0] == {
        "code": "DDP801",
        "name": "collective-on-some-ranks",
        "count": 2,
        "fixable": False,
    }


def test_json_holds_everything() -> None:
    checked = replace(ALL, fixed=4, programs=(LARGE, PART), skipped=LEFT_OUT)
    document = json.loads(check_json.render(checked))
    assert (document["schema"], document["files"], document["fixed"]) == (3, 3, 4)
    left = "main.py (read as far as lib.py:9, not save(), Net.test())"
    assert document["notes"] == [{"message": f"not read to its end: {left}"}]
    assert document["programs"][0] == {
        "start": "main.py",
        "session": "main.py:4",
        "opener": "torch.distributed.init_process_group",
    }
    assert document["skipped"][0] == {"path": "a.ipynb", "why": "a notebook"}
    assert document["findings"][1] == {
        "rule": "DDP801",
        "name": "collective-on-some-ranks",
        "severity": "error",
        "path": "main.py",
        "line": 5,
        "column": 2,
        "end_line": 5,
        "end_column": 24,
        "message": HANG.message,
        "fixable": False,
        "safe": False,
        "advice": "call it on all ranks",
        "way": [],
        "also": [],
        "because": [
            {
                "path": "main.py",
                "line": 3,
                "column": 8,
                "end_line": 3,
                "end_column": 23,
                "message": "the rank",
            },
            {
                "path": "lib/a b.py",
                "line": 1,
                "column": 1,
                "end_line": 1,
                "end_column": 7,
                "message": "used",
            },
        ],
    }
    assert document["findings"][2]["fixable"] is document["findings"][2]["safe"] is True


def test_github_commands_escape_what_would_end_them() -> None:
    note, error, warning = github.render(ALL).splitlines()
    assert note == (
        "::notice title=DDP501 console-on-every-rank,file=lib/a b.py,line=1,endLine=1,col=1,"
        "endColumn=7::every rank prints"
    )
    assert error.startswith("::error title=DDP801 collective-on-some-ranks,file=main.py,line=5,")
    assert error.endswith(
        "::rank 0 enters all_reduce alone: wrong numbers, or a hang%0Amain.py:3: the rank"
        "%0Alib/a b.py:1: used%0Acall it on all ranks"
    )
    assert warning.endswith("line=6,endLine=9::every rank writes 100%25, a:b")


def test_github_properties_escape_more() -> None:
    odd = replace(PRINT, site=Site("a,b:c%.py", Span(1, 0, 1, 1)))
    assert ",file=a%2Cb%3Ac%25.py,line=1" in github.render(replace(ALL, findings=(odd,)))


def test_gitlab() -> None:
    issues = json.loads(gitlab.render(ALL))
    assert issues[1] | {"fingerprint": ""} == {
        "description": "DDP801: rank 0 enters all_reduce alone: wrong numbers, or a hang",
        "check_name": "DDP801",
        "fingerprint": "",
        "severity": "critical",
        "location": {
            "path": "main.py",
            "positions": {"begin": {"line": 5, "column": 2}, "end": {"line": 5, "column": 24}},
        },
    }
    assert {issue["severity"] for issue in issues} <= {
        "info",
        "minor",
        "major",
        "critical",
        "blocker",
    }
    assert len({issue["fingerprint"] for issue in issues}) == 3
    assert json.loads(gitlab.render(NONE)) == []


def test_gitlab_paths_begin_at_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path / "lib")
    inside = replace(PRINT, site=Site("a b.py", Span(1, 0, 1, 6)))
    (issue,) = json.loads(gitlab.render(replace(ALL, findings=(inside,))))
    assert issue["location"]["path"] == "lib/a b.py"


def test_fingerprints_stay_when_lines_move() -> None:
    before = [issue["fingerprint"] for issue in json.loads(gitlab.render(ALL))]
    text = Path("main.py").read_text()
    Path("main.py").write_text(f"# moved\n{text}")
    moved = replace(HANG, site=Site("main.py", Span(6, 1, 6, 23)))
    after = json.loads(gitlab.render(replace(ALL, findings=(moved, moved))))
    assert after[0]["fingerprint"] == before[1]
    assert after[1]["fingerprint"] != before[1]


def test_junit() -> None:
    document = xml.fromstring(junit.render(ALL))
    assert (document.tag, document.get("tests"), document.get("failures")) == (
        "testsuites",
        "3",
        "2",
    )
    (suite,) = document
    assert [[part.tag for part in case] for case in suite].count(["system-out"]) == 1  # the note
    case = suite[1]
    assert case.get("name") == "DDP801 collective-on-some-ranks (5:2)"
    assert (case.get("file"), case.get("line"), case.get("classname")) == ("main.py", "5", "main")
    (failure,) = case
    assert failure.get("type") == "error"
    assert failure.get("message") == HANG.message
    assert (failure.text or "").splitlines()[1:] == [
        "main.py:3: the rank",
        "lib/a b.py:1: used",
        "call it on all ranks",
    ]


def test_junit_without_findings_is_a_test_that_passes() -> None:
    document = xml.fromstring(junit.render(NONE))
    assert (document.get("tests"), document.get("failures")) == ("1", "0")
    assert [len(case) for case in document[0]] == [0]


def test_junit_holds_no_control_characters() -> None:
    site = Site("a\x01\udcff\ufffe.py", PRINT.site.span)
    odd = replace(PRINT, site=site, message="a\x00b\x1bc<&>", severity=Severity.ERROR)
    document = xml.fromstring(junit.render(replace(ALL, findings=(odd,))))
    assert document[0][0].get("file") == "a\ufffd\ufffd\ufffd.py"
    assert document[0][0].get("classname") == "a\ufffd\ufffd\ufffd"
    assert document[0][0][0].get("message") == "a\ufffdb\ufffdc<&>"
