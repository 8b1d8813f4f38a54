"""The comparisons on hand-made runs: what each accepts, and what it says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.support import compare
from tests.support.recording import Event, FileEvent, Run, Step, load_run
from tests.support.run import _restore, _snapshot, run_distributed
from tests.support.torchrun import Completed

BACKWARD, STEP = Event("backward"), Event("step")
NAN, INF = float("nan"), float("inf")


def fetch(*samples: int, loader: int = 0, passed: int = 0, grad: bool = True) -> Event:
    return Event("fetch", loader=loader, passed=passed, samples=samples, grad=grad)


def end(loader: int = 0, passed: int = 0) -> Event:
    return Event("end", loader=loader, passed=passed)


def made(
    events: Sequence[Event] = (),
    *,
    rank: int = 0,
    steps: Sequence[Sequence[float]] = (),
    files: Sequence[FileEvent] = (),
    stdout: str = "",
    stderr: str = "",
) -> Run:
    taken = tuple(Step("SGD", (torch.tensor(step, dtype=torch.float64),), (1.0,)) for step in steps)
    return Run(rank, 2, "finished", 0, False, taken, tuple(events), tuple(files), stdout, stderr)


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        pytest.param([1.0, 2.0], [1.0, 2.0], 0.0, id="equal"),
        pytest.param([1.0, 4.0], [1.5, 4.0], 0.125, id="relative-to-the-largest"),
        pytest.param([0.0, 0.0], [0.0, 0.5], 1.0, id="from-zero"),
        pytest.param([NAN, 1.0], [NAN, 1.0], 0.0, id="both-nan"),
        pytest.param([NAN, 1.0], [1.0, 1.0], INF, id="one-nan"),
        pytest.param([INF, 1.0], [INF, 1.0], 0.0, id="both-infinite"),
        pytest.param([INF, 1.0], [1.0, 1.0], INF, id="one-infinite"),
        pytest.param([INF, 1.0], [-INF, 1.0], INF, id="opposite-infinities"),
        pytest.param([NAN, INF], [NAN, INF], 0.0, id="nan-and-infinite"),
    ],
)
def test_difference(left: list[float], right: list[float], difference: float) -> None:
    runs = made(steps=[[1.0], left]), made(steps=[[1.0], right])
    assert compare.max_relative_difference(*runs) == (0.0, difference)


def test_first_divergence_names_the_place() -> None:
    found = compare.first_divergence(made(steps=[[1.0], [1.0]]), made(steps=[[1.0], [1.25]]), 0.1)
    assert str(found) == "step 1 (SGD), parameter 0: relative difference 0.2"
    assert compare.first_divergence(made(steps=[[1.0]]), made(steps=[[1.25]]), 0.2) is None


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param(made(steps=[[1.0]]), "2 optimizer steps .* 1 in the other", id="steps"),
        pytest.param(made(steps=[[1.0], [1.0, 2.0]]), "step 1: different param", id="shapes"),
    ],
)
def test_runs_of_another_shape_do_not_compare(other: Run, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        compare.max_relative_difference(made(steps=[[1.0], [1.0]]), other)


def test_nothing_recorded_is_not_agreement() -> None:
    silent = [made(), made(rank=1)]
    with pytest.raises(AssertionError, match="the reference took no optimizer step"):
        compare.same_training(made(), silent)
    with pytest.raises(AssertionError, match="no optimizer step was recorded"):
        compare.ranks_identical(silent)
    with pytest.raises(AssertionError, match="the reference fetched no training sample"):
        compare.samples_partition(made(), silent)


TRAINED = [fetch(1, 2), BACKWARD, STEP, fetch(3), BACKWARD, STEP, end()]
TRAINED_SAMPLES = [{(0, 1): 1, (0, 2): 1}, {(0, 3): 1}]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(TRAINED, TRAINED_SAMPLES, id="plain"),
        pytest.param(
            [*TRAINED, fetch(8, loader=1), fetch(9, loader=1), end(1)],
            TRAINED_SAMPLES,
            id="validation-with-grad",
        ),
        pytest.param(
            [TRAINED[0], fetch(8, loader=1), end(1), *TRAINED[1:]],
            TRAINED_SAMPLES,
            id="validation-inside-an-epoch",
        ),
        pytest.param(
            [fetch(7), fetch(1, 2, passed=1), BACKWARD, STEP],
            TRAINED_SAMPLES[:1],
            id="a-look-at-one-batch-first",
        ),
        pytest.param(
            [fetch(1), BACKWARD, fetch(2), BACKWARD, STEP, end()],
            [{(0, 1): 1, (0, 2): 1}],
            id="accumulation",
        ),
        pytest.param([fetch(1), BACKWARD, STEP], [{(0, 1): 1}], id="one-batch-left-early"),
        pytest.param(
            [fetch(1), fetch(1, loader=1), BACKWARD, STEP, end()],
            [{(0, 1): 1, (1, 1): 1}],
            id="two-loaders-zipped",
        ),
        pytest.param(
            [fetch(1), BACKWARD, STEP, BACKWARD, STEP, fetch(2), BACKWARD, end()],
            [{(0, 1): 1}, {}, {(0, 2): 1}],
            id="two-optimizers-and-a-rest",
        ),
    ],
)
def test_training_samples(events: list[Event], expected: list[dict[object, int]]) -> None:
    assert list(compare.training_samples(made(events))) == expected


def test_evaluation_samples() -> None:
    again = [fetch(8, loader=1, passed=1, grad=False), end(1, 1)]
    events = [*TRAINED, fetch(8, loader=1), fetch(9, loader=1), end(1), *again]
    assert compare.evaluation_samples(made(events)) == ((8, 9), (8,))


def shares(*samples: Sequence[int]) -> list[Run]:
    return [made([fetch(*s), BACKWARD, STEP], rank=rank) for rank, s in enumerate(samples)]


@pytest.mark.parametrize(
    ("reference", "ranks"),
    [
        pytest.param([1, 2, 3, 4], [[1, 3], [2, 4]], id="shared-out"),
        pytest.param([1, 2, 3, 1], [[1, 3], [2, 1]], id="padding-twice-in-one-batch"),
    ],
)
def test_a_partition_is_accepted(reference: list[int], ranks: list[list[int]]) -> None:
    compare.samples_partition(shares(reference)[0], shares(*ranks))


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        pytest.param([[1, 2], [1, 2]], r"step 0: ranks 0 and 1 both .* 2 .*\(1, 2\)", id="same"),
        pytest.param([[1, 2], [3]], r"step 0: missing 1 samples \(4\), extra 0", id="missing"),
        pytest.param([[1, 2], [3, 4, 5]], r"missing 0 samples \(\), extra 1 .*5", id="extra"),
        pytest.param([[1, 1], [2, 3, 4]], r"extra 1 samples \(1\)", id="twice-on-one-rank"),
    ],
)
def test_no_partition_is_found(ranks: list[list[int]], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        compare.samples_partition(shares([1, 2, 3, 4])[0], shares(*ranks))


def test_an_extra_step_of_one_rank_is_found() -> None:
    longer = made([fetch(1), BACKWARD, STEP, fetch(9), BACKWARD, STEP], rank=1)
    with pytest.raises(AssertionError, match=r"step 1: missing 0 .*extra 1"):
        compare.samples_partition(shares([1, 2])[0], [*shares([2]), longer])


def folder_made(rank: int, existed: bool) -> Run:
    return made(rank=rank, files=[FileEvent("os.mkdir", "runs", existed, 0)])


def test_a_folder_made_twice_is_an_offence_unless_ordered() -> None:
    runs = [folder_made(0, False), folder_made(1, True)]
    with pytest.raises(AssertionError, match="runs is changed by rank 0 and by rank 1"):
        compare.files_once(runs)
    assert compare.files_once(runs, allow_existing_folders=True) == {"runs": 0}
    with pytest.raises(AssertionError, match="runs is changed"):
        compare.files_once([folder_made(0, False), folder_made(1, False)])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param([], r"collective 0 differs: \['barrier at a.py:1', 'none'\]", id="missing"),
        pytest.param(["a.py:9"], "'barrier at a.py:1', 'barrier at a.py:9'", id="other-place"),
    ],
)
def test_unpaired_collectives_are_found(other: list[str], message: str) -> None:
    def calls(sites: list[str]) -> list[Event]:
        return [Event("collective", name="barrier", site=site) for site in sites]

    with pytest.raises(AssertionError, match=message):
        compare.same_collectives([made(calls(["a.py:1"])), made(calls(other), rank=1)])
    assert compare.same_collectives([made(calls(["a.py:1"]))] * 2) == ("barrier",)


def test_a_balanced_pair_of_barriers_is_accepted_on_request() -> None:
    runs = [made([Event("collective", name="barrier", site=site)]) for site in ("a.py:1", "a.py:9")]
    assert compare.same_collectives(runs, by_site=False) == ("barrier",)


def test_only_rank_0_may_print() -> None:
    assert compare.stdout_once([made(stdout="a\n"), made(rank=1)]) == "a\n"
    with pytest.raises(AssertionError, match="rank 1 prints 1 lines, first: 'b'"):
        compare.stdout_once([made(), made(rank=1, stdout="b\n")])


def test_only_rank_0_may_show_progress() -> None:
    logged = "[Gloo] Rank 1 is connected\n[W1121 04:00:00.1 x.cpp:1] text\n \n"
    compare.stderr_once([made(stderr="50%|#"), made(rank=1, stderr=logged)])
    with pytest.raises(AssertionError, match=r"rank 1 shows on stderr: '50%'"):
        compare.stderr_once([made(), made(rank=1, stderr=logged + "50%")])


def test_a_rank_that_never_started_is_a_run_too(tmp_path: Path) -> None:
    assert load_run(tmp_path, 3, returncode=1).status == "not started"


def test_a_second_attempt_finds_the_files_of_the_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log.csv").write_text("old")
    (tmp_path / "gone.txt").write_text("here")
    before = _snapshot(tmp_path)
    (tmp_path / "data" / "log.csv").write_text("new")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "runs" / "1").mkdir(parents=True)
    (tmp_path / "runs" / "1" / "model.pt").write_text("x")
    out.mkdir()
    (out / "rank0.json").write_text("{}")
    _restore(tmp_path, before, out)
    assert (tmp_path / "data" / "log.csv").read_text() == "old"
    assert (tmp_path / "gone.txt").read_text() == "here"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "gone.txt", "out"]
    assert (out / "rank0.json").exists()


@pytest.mark.parametrize(
    ("stderr", "attempts"),
    [
        pytest.param(["terminate called without an active exception", ""], 2, id="race-once"),
        pytest.param(["terminate called without an active exception"] * 2, 2, id="race-twice"),
        pytest.param(["RuntimeError: mine"], 1, id="own-failure"),
    ],
)
def test_only_the_exit_race_is_retried_once_from_a_restored_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stderr: list[str], attempts: int
) -> None:
    texts, found = iter(stderr), []

    def attempt(*_: object) -> Completed:
        found.append((tmp_path / "log.csv").read_text())
        (tmp_path / "log.csv").write_text("written")
        text = next(texts)
        return Completed(int(bool(text)), "", text, ("",) * 2, ("",) * 2)

    monkeypatch.setattr("tests.support.torchrun._run_once", attempt)
    (tmp_path / "log.csv").write_text("old")
    runs = run_distributed(tmp_path, ["main.py"], 2, tmp_path / "out")
    assert found == ["old"] * attempts
    assert [run.returncode for run in runs] == [int(bool(stderr[-1]))] * 2
