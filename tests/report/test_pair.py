"""A rule is shown by two programs that differ in the bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.checking.catalogue import catalogue
from ddpify.pipeline import migrate
from ddpify.report.pair import NEAR, ShownPair, pair, unmarked
from ddpify.rules.base import Example, Rule, Severity
from ddpify.settings import Settings
from tests.projects import marked, places, put_example

RULES = {rule.id: rule for rule in catalogue()}
# A copy that somebody edited, and a conversion, which mends nothing.
NOTHING_TO_SHOW = {"DDP001", "DDP008", "DDP930"}
# Of one process, and what migrate makes of it: there is no program between the two.
FAR = {"DDP218"}
# What no rule finds that reads programs, but the reading of what starts and makes them.
STARTED = ("DDP002", "DDP960", "DDP961", "DDP963", "DDP964")


def test_wrong_and_right_differ_in_a_few_lines() -> None:
    shown = {code: pair(rule) for code, rule in RULES.items()}
    assert {code for code, found in shown.items() if found is None} == NOTHING_TO_SHOW
    assert {code for code, found in shown.items() if found and found.lines > NEAR} == FAR


def test_every_other_pair_differs() -> None:
    assert not [code for code, rule in RULES.items() if (found := pair(rule)) and not found.lines]


def of(*texts: str) -> tuple[Example, ...]:
    return tuple(Example((("main.py", text),)) for text in texts)


@pytest.mark.parametrize(
    ("wrong", "right", "chosen"),
    [
        pytest.param(["a\nb\n"], ["x\ny\n", "a\nc\n"], (0, 1), id="near"),
        pytest.param(["a\n", "b\nc\n"], ["b\n"], (0, 0), id="first"),
        pytest.param(
            ["ddp_utils\na\n", "b\nc\n"], ["ddp_utils\nb\n", "b\nd\ne\n"], (1, 1), id="hand"
        ),
        pytest.param(["a  # DDP101\n"], ["b\n", "a\n"], (0, 1), id="marks"),
        pytest.param(["a\n\n\n\nb\n"], ["c\n", "a\nb\n"], (0, 1), id="empty-lines"),
    ],
)
def test_the_nearest_is_chosen(wrong: list[str], right: list[str], chosen: tuple[int, int]) -> None:
    rule = Rule("DDP101", "name", "why", "source", bad=of(*wrong), good=of(*right))
    assert pair(rule) == ShownPair(rule.bad[chosen[0]], rule.good[chosen[1]])


def test_marks_are_taken_out() -> None:
    assert unmarked("\na = 1  # DDP801\nb = 2  # why\n") == "a = 1\nb = 2  # why"


@pytest.mark.parametrize("code", STARTED)
def test_examples_of_starts_are_what_they_say(code: str, tmp_path: Path) -> None:
    rule = RULES[code]
    assert rule.severity is Severity.WARNING
    for place, example in (("wrong", rule.bad[0]), ("right", rule.good[0])):
        folder = tmp_path / place
        folder.mkdir()
        put_example(example, folder)
        found = [one for one in migrate((folder / "main.py",), Settings()).findings]
        wanted = marked(dict(example.files), code)
        assert bool(wanted) is (place == "wrong")
        assert {(Path(path).name, line) for path, line in places(found)} == wanted
