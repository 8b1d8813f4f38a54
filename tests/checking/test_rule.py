"""`ddpify rule`: what a code means, from the rule's own file."""

from __future__ import annotations

import json

import pytest

from ddpify import cli
from ddpify.checking.catalogue import catalogue
from ddpify.checking.codes import known
from ddpify.rules.registry import all_rules


def test_one_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rule", "DDP204"]) == 0
    page = capsys.readouterr().out
    rule = next(one for one in all_rules() if one.id == "DDP204")
    assert page.startswith(f"## DDP204 {rule.name}\n\nSeverity: {rule.severity.value}; ")
    for part in (rule.why, rule.source, "### Wrong", "### Right", "# DDP204"):
        assert part in page


def test_codes_may_be_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rule", "ddp204"]) == 0
    assert capsys.readouterr().out.startswith("## DDP204 ")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rule", "DDP204", "--output-format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["code"] == "DDP204"
    assert "main.py" in document["bad"][0]
    assert cli.main(["rule", "--all", "--output-format", "json"]) == 0
    assert [one["code"] for one in json.loads(capsys.readouterr().out)] == list(known())


def test_all_rules_are_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rule", "--all"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# Rules\n\n| code | name | severity | fix |\n|---|---|---|---|\n")
    for rule in catalogue():
        anchor = f"{rule.id.lower()}-{rule.name}"
        assert f"| [{rule.id}](#{anchor}) | {rule.name} | {rule.severity.value} |" in page
        assert f"\n## {rule.id} {rule.name}\n" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["DDP20"], "there is no rule DDP20; near: DDP20", id="near"),
        pytest.param(["E501"], "there is no rule E501; `ddpify rule --all`", id="far"),
        pytest.param([], "name a rule's code, or give --all", id="nothing"),
        pytest.param(["DDP204", "--all"], "name a rule's code, or give --all", id="both"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rule", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"ddpify: {sentence}")


def test_every_code_has_a_rule_and_every_rule_its_code() -> None:
    """What is known without loading a rule is what there is."""
    assert [rule.id for rule in catalogue()] == list(known())


def test_names_are_different() -> None:
    names = [rule.name for rule in catalogue()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("code", "said"), [("DDP809", "by hand"), ("DDP204", "safe, where")])
def test_what_has_no_fix_says_so(code: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rule", code]) == 0
    assert f"each finding has its own. Fix: {said}" in capsys.readouterr().out
