"""SARIF: the shape is the standard's, and every place, rule and fix is the right one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ddpify import __version__
from ddpify.checking.catalogue import catalogue
from ddpify.checking.model import Checked
from ddpify.links import rule_page
from ddpify.plan import Change
from ddpify.report import sarif
from ddpify.rules.base import Finding
from ddpify.source import Site, Span
from tests.report.checked import ALL, HANG, MAIN, NONE, PRINT, SAVE, put
from tests.report.sarif import SCHEMA


def document(checked: Checked, *changes: Change) -> dict[str, Any]:
    """The document, which has the shape that SARIF has."""

    def fixes(found: Sequence[Finding]) -> tuple[Change, ...]:
        return changes if found[0].rule == "DDP601" else ()

    found: dict[str, Any] = json.loads(sarif.render(checked, catalogue(), fixes))
    jsonschema.Draft7Validator(SCHEMA).validate(found)
    return found


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path)


def test_rules_are_described_once_and_pointed_to() -> None:
    other = replace(SAVE, message="another", site=Site("main.py", Span(7, 0, 7, 3)))
    two = replace(ALL, findings=(SAVE, other))
    (run,) = document(two)["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("ddpify", __version__)
    (rule,) = driver["rules"]
    assert (rule["id"], rule["name"]) == ("DDP601", "SaveOnEveryRank")
    assert rule["helpUri"] == rule_page("DDP601")
    assert "```python" in rule["help"]["markdown"]
    assert [result["ruleIndex"] for result in run["results"]] == [0, 0]
    assert [result["ruleId"] for result in run["results"]] == ["DDP601", "DDP601"]


def test_places_count_from_one_and_paths_are_uris(tmp_path: Path) -> None:
    (run,) = document(ALL)["runs"]
    base = run["originalUriBaseIds"]["SRCROOT"]["uri"]
    assert base == f"{tmp_path.as_uri()}/"
    note, hang, _ = run["results"]
    place = hang["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "main.py", "uriBaseId": "SRCROOT"}
    assert place["region"] == {"startLine": 5, "startColumn": 2, "endLine": 5, "endColumn": 24}
    assert note["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "lib/a%20b.py"
    assert [result["level"] for result in run["results"]] == ["note", "error", "warning"]
    assert len({result["partialFingerprints"]["ddpify/v1"] for result in run["results"]}) == 3


def test_a_file_elsewhere_has_a_whole_uri() -> None:
    odd = replace(PRINT, site=Site("/else where/a.py", Span(1, 0, 1, 1)))
    (result,) = document(replace(ALL, findings=(odd,)))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "file:///else%20where/a.py"}


def test_the_proof_is_a_code_flow_that_ends_at_the_finding() -> None:
    (result,) = document(replace(ALL, findings=(HANG,)))["runs"][0]["results"]
    steps = result["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [step["location"]["message"]["text"] for step in steps] == [
        "the rank",
        "used",
        HANG.message,
    ]
    assert [place["id"] for place in result["relatedLocations"]] == [1, 2]
    assert "call it on all ranks" in result["message"]["text"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(MAIN, MAIN.replace("rank = ", "me = "), id="replaced"),
        pytest.param(MAIN, f"import os\n{MAIN}", id="inserted-first"),
        pytest.param(MAIN, f"{MAIN}done()\n", id="inserted-last"),
        pytest.param(MAIN, MAIN.replace("\tdist.all_reduce(total)\n", ""), id="deleted"),
        pytest.param("a = 1", "a = 2", id="no-line-end"),
        pytest.param("a = 1", "a = 1\nb = 2\n", id="added-behind-no-line-end"),
        pytest.param("a\r\nb\r\nc\r\n", "a\r\nc\r\n", id="crlf"),
        pytest.param("", "a = 1\n", id="into-nothing"),
    ],
)
def test_replacements_make_the_new_text(before: str, after: str) -> None:
    """As a program that reads SARIF would make them."""
    change = Change("main.py", before.encode(), after.encode(), ())
    (result,) = document(replace(ALL, findings=(SAVE,)), change)["runs"][0]["results"]
    (fix,) = result["fixes"]
    (changed,) = fix["artifactChanges"]
    assert changed["artifactLocation"]["uri"] == "main.py"
    assert applied(before, changed["replacements"]) == after


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """The replacements, the last one first so that places stay."""
    starts = [0] + [at + 1 for at, letter in enumerate(text) if letter == "\n"]
    for one in reversed(replacements):
        region = one["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + one["insertedContent"]["text"] + text[end:]
    return text


def test_a_fix_that_adds_a_file_is_not_told() -> None:
    new = Change("new.py", None, b"x\n", ())
    (result,) = document(replace(ALL, findings=(SAVE,)), new)["runs"][0]["results"]
    assert "fixes" not in result


def test_nothing_found() -> None:
    (run,) = document(NONE)["runs"]
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


def test_every_rule_can_be_described() -> None:
    """One finding of each, so that each rule's page and links have the shape they need."""
    everywhere = tuple(replace(PRINT, rule=rule.id) for rule in catalogue())
    (run,) = document(Checked(everywhere, {}, 1, True))["runs"]
    assert len(run["tool"]["driver"]["rules"]) == len(everywhere)
