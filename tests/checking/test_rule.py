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
    assert page.startswith(f"## DDP204 {rule.name}\n\nSeverity: ")
    for part in (rule.why, "composer#1201, mmpretrain#273\n", "### Wrong", "### Right", "# DDP204"):
        assert part in page


@pytest.mark.parametrize("said", ["ddp401", "401", "loss-no-mean", "Loss-No-m", " DDP401 "])
def test_a_rule_by_what_is_known_of_it(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rule", said]) == 0
    assert capsys.readouterr().out.startswith("## DDP401 loss-no-mean\n")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("DDP801", "Severity: error. Fix: by hand."),
        (
            "DDP401",
            "Severity: error; in `check`: warning or note. Fix: `migrate`, where it is cert",
        ),
        ("DDP601", "Severity: error or warning, by what is proven. Fix: `migrate`, where"),
    ],
)
def test_severity_and_fix_say_what_the_commands_do(
    code: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rule", code]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith(line)


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
        assert f"| [{rule.id}](#{anchor}) | {rule.name} | " in page
        assert f"\n## {rule.id} {rule.name}\n" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["DDP20"], "there is no rule DDP20; near: DDP201 missing-", id="near"),
        pytest.param(["80"], "there is no rule 80; near: DDP801 collective-on-", id="number"),
        pytest.param(["los-no-mean"], "there is no rule los-no-mean; near: DDP401", id="typo"),
        pytest.param(["no-mean"], "there is no rule no-mean; near: DDP401 loss-", id="inside"),
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
