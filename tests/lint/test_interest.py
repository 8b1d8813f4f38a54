"""What is worth reading: no rule is blind to a call because the function around it says little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpify.ranks.interest import Interest
from ddpify.rules.registry import all_rules
from tests.lint.cases import Case, Mark, all_cases, findings
from tests.lint.in_helper import in_helper


def programs() -> Iterator[Case]:
    """All that is wrong in the suite and in the rules' examples."""
    yield from (case for case in all_cases() if case.label == "bad")
    for rule in all_rules():
        for number, example in enumerate(rule.bad):
            if rule.lint_file is None:  # that needs no call to be read, nor Python 3
                yield Case(f"{rule.id}-{number}", "", "", "bad", "", example.files)


def helped() -> Iterator[Case]:
    """Each wrong call in a helper of its own."""
    for case in programs():
        made = (in_helper(case, mark) for mark in case.marks())
        yield from (one for one in made if one is not None)


def missed(case: Case, folder: Path) -> list[Mark]:
    """What is marked and not found."""
    found = findings(case, folder)
    return [mark for mark in case.marks() if not any(mark.meets(one) for one in found)]


@pytest.mark.thorough
def test_a_call_in_a_helper_that_says_nothing_else_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some reports move to the caller; none is missing that comes when everything is read."""
    cases = list(helped())
    unseen = [case for n, case in enumerate(cases) if missed(case, tmp_path / str(n))]
    monkeypatch.setattr(Interest, "enters", lambda self, info: True)
    blind = [case.name for n, case in enumerate(unseen) if not missed(case, tmp_path / f"all{n}")]
    assert not blind
    assert len(cases) >= 500
    assert len(cases) - len(unseen) >= 300
