"""Every rule's examples are its tests: it reports in the bad ones where they say so, only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.model import Status
from ddpify.rules.base import Example, Rule
from ddpify.rules.examples import CORRECT
from ddpify.rules.registry import all_rules
from tests.projects import judged, marked, places, put_example, read


def examples(attribute: str) -> list[object]:
    return [
        pytest.param(rule, example, id=f"{rule.id}-{number}")
        for rule in all_rules()
        for number, example in enumerate(getattr(rule, attribute))
    ]


@pytest.mark.parametrize(("rule", "example"), examples("bad"))
def test_a_rule_reports_in_its_bad_examples_where_they_say_so(
    rule: Rule, example: Example, tmp_path: Path
) -> None:
    facts = read(put_example(example, tmp_path))
    wanted = marked(dict(example.files), rule.id)
    assert wanted, "no line of the example is marked with the rule's code"
    assert places(judged(facts, [rule])) == wanted


@pytest.mark.parametrize(("rule", "example"), examples("bad"))
def test_nothing_else_is_wrong_with_a_bad_example_that_is_distributed(
    rule: Rule, example: Example, tmp_path: Path
) -> None:
    facts = read(put_example(example, tmp_path))
    reported = {finding.rule for finding in judged(facts)}
    if facts.status in (Status.SINGLE, Status.DATA_PARALLEL):
        assert {"DDP101", "DDP202", "DDP301"} <= reported  # all that migrate adds is missing
    else:
        assert reported == {rule.id}


@pytest.mark.parametrize(("rule", "example"), examples("good"))
def test_a_rule_is_silent_in_its_good_examples(
    rule: Rule, example: Example, tmp_path: Path
) -> None:
    assert judged(read(put_example(example, tmp_path)), [rule]) == []


@pytest.mark.parametrize("example", CORRECT, ids=["script", "project", "trainer", "by-hand"])
def test_no_rule_reports_in_the_correct_projects(example: Example, tmp_path: Path) -> None:
    assert judged(read(put_example(example, tmp_path))) == []
