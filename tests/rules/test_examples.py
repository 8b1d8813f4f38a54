"""Every rule's examples are its tests: it reports in the bad ones where they say so, only there.

Rules that ``migrate`` uses judge the comparison with one process, save in examples that are
distributed by hand; there, as the others everywhere, they judge the two-rank reading.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.model import Status
from ddpify.launchers import legacy, per_task
from ddpify.lint import lint
from ddpify.rules.base import Example, Finding, Rule
from ddpify.rules.examples import CORRECT
from ddpify.rules.registry import all_rules
from tests.projects import judged, marked, places, put_example, read

RULES = all_rules()
MIGRATING = {rule.id for rule in RULES if rule.check is not Rule.check}
# The fact is named more than once: saving under a guard what only all ranks can gather.
# A model that is frozen whole at the wrap stops torch's own wrapper; that of the helpers goes on.
TOGETHER = {("DDP805", "DDP904"), ("DDP979", "DDP951"), ("DDP307", "DDP320"), ("DDP807", "DDP825")}


def examples(attribute: str, *, migrating: bool) -> list[object]:
    return [
        pytest.param(rule, example, id=f"{rule.id}-{number}")
        for rule in RULES
        if (rule.id in MIGRATING) is migrating
        for number, example in enumerate(getattr(rule, attribute))
    ]


def checked(example: Example, folder: Path) -> list[Finding]:
    """What ``ddpify check`` says of a program that is distributed."""
    put_example(example, folder)
    files = [folder / path for path, _ in example.files]
    python = [file for file in files if file.suffix == ".py"]
    found = lint(folder, python, assume_distributed=example.assumed).findings
    scripts = [file for file in files if file.suffix != ".py"]
    return [*found, *legacy.findings(folder, scripts), *per_task.findings(folder, scripts)]


def fixes_as_said(rule: Rule, found: list[Finding]) -> bool:
    """Whether none of its findings has a fix if the rule says that there is none."""
    return rule.fixes or not any(one.fix for one in found if one.rule == rule.id)


def found_in(example: Example, folder: Path) -> tuple[Status, list[Finding]]:
    """What is found: by the reading that the program, one process or many, is for."""
    facts = read(put_example(example, folder))
    by_hand = facts.status is Status.DISTRIBUTED
    return facts.status, checked(example, folder) if by_hand else judged(facts)


@pytest.mark.parametrize(("rule", "example"), examples("bad", migrating=True))
def test_a_rule_reports_in_its_bad_examples_where_they_say_so(
    rule: Rule, example: Example, tmp_path: Path
) -> None:
    status, found = found_in(example, tmp_path)
    wanted = marked(dict(example.files), rule.id)
    assert wanted, "no line of the example is marked with the rule's code"
    assert places(one for one in found if one.rule == rule.id) == wanted
    assert fixes_as_said(rule, found)
    reported = {finding.rule for finding in found}
    if status in (Status.SINGLE, Status.DATA_PARALLEL):
        assert {"DDP101", "DDP301"} <= reported  # all that migrate adds is missing
        assert {"DDP202", "DDP218"} & reported
    else:
        assert reported == {rule.id}


@pytest.mark.parametrize(("rule", "example"), examples("bad", migrating=False))
def test_a_rule_of_check_reports_in_its_bad_examples_where_they_say_so(
    rule: Rule, example: Example, tmp_path: Path
) -> None:
    found = checked(example, tmp_path)
    wanted = marked(dict(example.files), rule.id)
    assert wanted, "no line of the example is marked with the rule's code"
    assert places(one for one in found if one.rule == rule.id) == wanted
    assert fixes_as_said(rule, found)
    others = {(rule.id, one.rule) for one in found if one.rule != rule.id}
    assert others <= TOGETHER


@pytest.mark.parametrize(("rule", "example"), examples("good", migrating=True))
def test_a_rule_is_silent_in_its_good_examples(
    rule: Rule, example: Example, tmp_path: Path
) -> None:
    _, found = found_in(example, tmp_path)
    assert [one for one in found if one.rule == rule.id] == []


@pytest.mark.parametrize(("rule", "example"), examples("good", migrating=False))
def test_no_rule_of_check_reports_in_the_good_examples(
    rule: Rule, example: Example, tmp_path: Path
) -> None:
    assert checked(example, tmp_path) == []


@pytest.mark.parametrize("example", CORRECT, ids=["script", "project", "trainer", "by-hand"])
def test_no_rule_reports_in_the_correct_projects(example: Example, tmp_path: Path) -> None:
    assert found_in(example, tmp_path)[1] == []
    assert checked(example, tmp_path) == []
