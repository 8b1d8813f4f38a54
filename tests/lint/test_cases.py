"""The labelled suite: what is wrong is found on its line, what is right is left alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ddpify.rules.base import Finding
from tests.lint.cases import Case, all_cases, findings

# Every entry of the catalogue of bugs; K05 stands for the keys of compiled models (G24), too.
CATALOGUE = frozenset(
    [f"C{n:02}" for n in range(1, 20)]
    + [f"D{n:02}" for n in range(1, 16)]
    + [f"M{n:02}" for n in range(1, 8)]
    + [f"G{n:02}" for n in range(1, 24)]
    + [f"K{n:02}" for n in range(1, 11)]
    + [f"L{n:02}" for n in range(1, 21)]
)
BAD = [case for case in all_cases() if case.label == "bad"]
RIGHT = [case for case in all_cases() if case.label != "bad"]


@cache
def found(case: Case) -> tuple[Finding, ...]:
    """What is reported, each program read once."""
    with TemporaryDirectory() as folder:
        return tuple(findings(case, Path(folder).resolve()))


def places(reported: tuple[Finding, ...]) -> list[str]:
    """For the message of a failure."""
    return [f"{one.rule} {one.site.path}:{one.site.span.line} {one.message}" for one in reported]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_a_bug_is_reported_where_it_is_and_nothing_else_is(case: Case) -> None:
    marks, reported = case.marks(), found(case)
    assert marks, "a bad case marks the lines to report"
    missed = [mark for mark in marks if not any(mark.meets(one) for one in reported)]
    noise = tuple(one for one in reported if not any(mark.meets(one) for mark in marks))
    assert not missed, places(reported)
    assert not noise, places(noise)


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_program_is_left_alone(case: Case) -> None:
    assert not found(case), places(found(case))


def test_the_suite_has_a_wrong_and_a_right_program_for_every_entry_of_the_catalogue() -> None:
    assert len(all_cases()) >= 200
    assert {case.bug for case in BAD} >= CATALOGUE
    assert len({case.bug for case in RIGHT} & CATALOGUE) >= 0.9 * len(CATALOGUE)


def test_precision_and_recall_by_class(capsys: pytest.CaptureFixture[str]) -> None:
    """As the suites for MPI do: per class, on all programs."""
    hits: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    false: Counter[str] = Counter()
    programs: dict[str, Counter[str]] = defaultdict(Counter)
    for case in all_cases():
        programs[case.kind][case.label] += 1
        marks, reported = case.marks(), found(case)
        wanted[case.kind] += len(marks)
        hits[case.kind] += sum(any(mark.meets(one) for one in reported) for mark in marks)
        false[case.kind] += sum(not any(mark.meets(one) for mark in marks) for one in reported)
    with capsys.disabled():
        print(table(programs, hits, wanted, false))
    assert sum(hits.values()) >= 0.95 * sum(wanted.values())
    for kind, number in wanted.items():
        assert hits[kind] >= 0.95 * number, kind


def table(
    programs: dict[str, Counter[str]],
    hits: Counter[str],
    wanted: Counter[str],
    false: Counter[str],
) -> str:
    """One row a class: programs by label, bugs, found, false reports, recall, precision."""
    lines = ["", f"{'class':14} {'bad':>4} {'good':>5} {'near':>5} {'bugs':>5} {'found':>5}"
             f" {'false':>5} {'recall':>7} {'precision':>9}"]  # fmt: skip
    for kind in sorted(programs):
        labels, right = programs[kind], hits[kind]
        recall = f"{right / wanted[kind]:.3f}" if wanted[kind] else "-"
        reports = right + false[kind]
        precision = f"{right / reports:.3f}" if reports else "-"
        lines.append(
            f"{kind:14} {labels['bad']:4} {labels['good']:5} {labels['near-miss']:5}"
            f" {wanted[kind]:5} {right:5} {false[kind]:5} {recall:>7} {precision:>9}"
        )
    return "\n".join(lines)
