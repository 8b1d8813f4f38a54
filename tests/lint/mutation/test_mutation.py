"""Take one safeguard out of a correct script: does `check` see that it is missing?"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.rules.base import Finding
from tests.lint.mutation.expected import EQUIVALENT, FLOORS, INFORMATION
from tests.lint.mutation.mutants import Mutant, mutants
from tests.lint.mutation.scripts import scripts, write
from tests.support.torchrun import torchrun

SCRIPTS = scripts()
RUNNABLE = [
    *("early_stop", "resume", "sharded"),
    *(pytest.param(n, marks=pytest.mark.thorough) for n in ("evaluation", "functions", "trainer")),
]


@dataclass(frozen=True)
class Judged:
    """A mutant, by name, and what was found in it."""

    name: str
    mutant: Mutant
    findings: tuple[Finding, ...]


def _found(files: dict[str, str], folder: Path) -> tuple[Finding, ...]:
    write(files, folder)
    return lint(folder, [folder / name for name in files]).findings


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Judged, ...]:
    return tuple(_judged(tmp_path_factory.mktemp("mutants")))


def _judged(folder: Path) -> Iterator[Judged]:
    for script, files in SCRIPTS.items():
        for number, mutant in enumerate(mutants(files)):
            found = _found(dict(mutant.files), folder / f"{script}-{number}")
            yield Judged(f"{script} {mutant.kind} {mutant.where}", mutant, found)


def test_there_are_ten_scripts_and_every_safeguard_has_mutants() -> None:
    kinds = {m.kind for files in SCRIPTS.values() for m in mutants(files)}
    assert len(SCRIPTS) == 10
    assert kinds == set(FLOORS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_is_found_in_the_correct_script(script: str, tmp_path: Path) -> None:
    assert _found(SCRIPTS[script], tmp_path) == ()


def test_every_mutant_says_something_else_than_the_script() -> None:
    """A mutator that changes nothing would be counted as a miss, or hide one."""
    for files in SCRIPTS.values():
        for mutant in mutants(files):
            name = mutant.where.partition(":")[0]
            assert mutant.files[name] != files[name]
            compile(mutant.files[name], name, "exec")


def test_the_mutants_that_do_no_harm_are_there_and_are_not_reported(
    judged: tuple[Judged, ...],
) -> None:
    harmless = {*EQUIVALENT, *INFORMATION}
    assert harmless <= {one.name for one in judged}
    assert not {one.name for one in judged if one.name in harmless and one.findings}


def test_the_share_of_mutants_reported(
    judged: tuple[Judged, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [one for one in judged if one.name not in {*EQUIVALENT, *INFORMATION}]
    total = Counter(one.mutant.kind for one in wrong)
    seen = Counter(one.mutant.kind for one in wrong if one.findings)
    with capsys.disabled():
        print(f"\n{'safeguard taken out':20} reported")
        for kind in sorted(total):
            print(f"{kind:20} {seen[kind]:2} of {total[kind]:2}")
        print(f"{'all':20} {seen.total():2} of {total.total():2}")
        print(f"{'still correct':20} {len(EQUIVALENT):2}")
        print(f"{'training loss only':20} {len(INFORMATION):2}")
        for one in wrong:
            if not one.findings:
                print(f"missed: {one.name}")
    below = {kind: seen[kind] for kind, floor in FLOORS.items() if seen[kind] < floor}
    assert not below


@pytest.mark.training
@pytest.mark.parametrize("script", RUNNABLE)
def test_the_correct_script_runs_on_two_ranks(script: str, tmp_path: Path) -> None:
    main = write(SCRIPTS[script], tmp_path / script)

    def start_afresh() -> None:
        shutil.rmtree(main.parent)  # its checkpoints: a second attempt would resume from them
        write(SCRIPTS[script], main.parent)

    done = torchrun(main, 2, cwd=main.parent, before_attempt=start_afresh)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.rank_stdout[0]
    assert not done.rank_stdout[1]
