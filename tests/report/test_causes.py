"""Several places of one cause are one finding in each format, and findings of their own for all
that acts on places."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ddpify.checking.catalogue import catalogue
from ddpify.checking.causes import causes
from ddpify.checking.model import Checked
from ddpify.report import check_json, concise, findings, github, gitlab, junit, sarif, statistics
from ddpify.rules.base import Finding, Severity
from ddpify.source import Site, Span
from tests.checking.test_real import further
from tests.report.checked import HANG

CALL = Site("main.py", Span(30, 4, 30, 20))


def at(path: str, line: int, rule: str = "DDP204", **changes: object) -> Finding:
    """A finding in a line."""
    site = Site(path, Span(line, 0, line, 9))
    made = Finding(rule, site, "all ranks download", Severity.WARNING, advice="let one go first")
    return replace(made, **changes)  # type: ignore[arg-type]


def told(*found: Finding) -> Checked:
    """What was found, without names of rules."""
    return Checked(found, {}, files=3, applies=True)


DOWNLOADS = told(
    at("data.py", 35, way=((CALL, "calls load()"),)), at("data.py", 36), at("data.py", 40)
)
LINES = told(*(at(f"run{n}.sh", line, "DDP003") for n in range(1, 12) for line in (2, 7)))


def test_text_names_all_places() -> None:
    assert findings.render(DOWNLOADS) == (
        "data.py:35:1: warning DDP204 all ranks download\n"
        "    main.py:30: calls load()\n"
        "    also in lines 36, 40\n"
        "    let one go first\n"
        "1 finding (1 warning) at 3 places in 1 file.\n"
    )
    text = findings.render(LINES)
    assert "1 finding (1 warning) at 22 places in 11 files.\n" in text
    assert "    also in run1.sh:7; run2.sh:2, 7; run3.sh:2, 7;" in text
    assert max(map(len, text.splitlines())) <= 100


def test_concise_keeps_to_one_line() -> None:
    first, *_ = concise.render(DOWNLOADS).splitlines()
    assert first == "data.py:35:1: warning DDP204 all ranks download (also in lines 36, 40)"
    first, *_ = concise.render(LINES).splitlines()
    assert first.endswith("all ranks download (and in 21 more places)")


def test_json_has_each_place_with_its_way() -> None:
    (one,) = json.loads(check_json.render(DOWNLOADS))["findings"]
    assert [place["message"] for place in one["way"]] == ["calls load()"]
    assert [(place["path"], place["line"]) for place in one["also"]] == [
        ("data.py", 36),
        ("data.py", 40),
    ]


def test_sarif_relates_the_other_places() -> None:
    text = sarif.render(DOWNLOADS, catalogue(), lambda found: ())
    (result,) = json.loads(text)["runs"][0]["results"]
    lines = [one["physicalLocation"]["region"]["startLine"] for one in further(result)]
    assert lines == [36, 40]
    assert "Also in lines 36, 40." in result["message"]["text"]
    flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
    assert next(step["location"]["message"]["text"] for step in flow) == "calls load()"


def test_one_annotation_and_one_test() -> None:
    (line,) = github.render(DOWNLOADS).splitlines()
    assert "%0Amain.py:30: calls load()%0Aalso in lines 36, 40%0Alet one go first" in line
    assert junit.render(DOWNLOADS).count("<testcase") == 1
    assert "also in lines 36, 40" in junit.render(DOWNLOADS)


def test_what_is_compared_or_counted_by_place_stays_so() -> None:
    marks = [issue["fingerprint"] for issue in json.loads(gitlab.render(DOWNLOADS))]
    assert len(set(marks)) == 3
    assert statistics.render(DOWNLOADS).startswith("3\tDDP204")


@pytest.mark.parametrize(
    ("second", "count"),
    [
        pytest.param(at("other.py", 2), 2, id="another-file"),
        pytest.param(at("main.py", 2), 1, id="the-same-file"),
        pytest.param(at("main.py", 2, message="another"), 2, id="other-words"),
        pytest.param(at("main.py", 2, severity=Severity.ERROR), 2, id="another-severity"),
    ],
)
def test_without_proof_a_file_has_one_cause(second: Finding, count: int) -> None:
    assert len(causes((at("main.py", 1), second))) == count


def test_one_proof_is_one_cause_in_whatever_files() -> None:
    proof = ((CALL, "it yields the same on all ranks"),)
    pair = at("a.py", 1, because=proof), at("b.py", 5, because=proof, message="of `head`")
    (cause,) = causes(pair)
    assert cause.elsewhere == "b.py:5"
    apart = replace(HANG, because=((CALL, "another condition"),))
    assert len(causes((HANG, apart))) == 2


def test_a_comment_takes_out_its_place_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ddpify import cli

    monkeypatch.chdir(tmp_path)
    line = "python -m torch.distributed.launch --use_env --nproc_per_node 2 main.py"
    Path("a.sh").write_text(f"{line}\n{line}  # noqa: DDP003\n{line} --fast\n")
    Path("b.sh").write_text(f"{line}\n")
    for _ in "first", "cached":
        cli.main(["check"])
        assert "also in a.sh:3; b.sh:1" in capsys.readouterr().out
    cli.main(["check", "--fix"])
    assert "Fixed 1 finding." in capsys.readouterr().out
    assert Path("a.sh").read_text().count("torch.distributed.launch") == 1
    assert "torchrun" in Path("b.sh").read_text()
