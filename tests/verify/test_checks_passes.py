"""Which fetches count as training, told from the order of events; and shares that are wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpify.verify.checks.passes import passes, training_windows
from ddpify.verify.recording import Backward, EndRecord, EventRecord, Fetch, RunRecord, StepTaken
from ddpify.verify.verdict import Verdict
from tests.verify.factories import checked, evidence

BACKWARD, STEP = Backward(0, 0.0, 1.0), StepTaken(0, 0.0, 0)


def fetch(*samples: int, loader: int = 0, passed: int = 0, grad: bool = True) -> EventRecord:
    return Fetch(0, 0.0, loader, passed, samples, ("",) * len(samples), grad)


def end(loader: int = 0, passed: int = 0) -> EventRecord:
    return EndRecord(0, 0.0, loader, passed)


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
def test_training_samples(events: list[EventRecord], expected: list[dict[object, int]]) -> None:
    assert list(training_windows(RunRecord(events=tuple(events)))) == expected


def test_what_trains_nothing_is_evaluation() -> None:
    again = [fetch(8, loader=1, passed=1, grad=False), end(1, 1)]
    events = [*TRAINED, fetch(8, loader=1), fetch(9, loader=1), end(1), *again]
    found = passes(RunRecord(events=tuple(events)))
    assert [each.samples for each in found if not each.training] == [(8, 9), (8,)]


def trained(*batches: tuple[int, ...], rank: int = 0) -> RunRecord:
    events = [event for batch in batches for event in (fetch(*batch), BACKWARD, STEP)]
    run = evidence().distributed.runs[rank]
    return replace(run, events=tuple(events), steps=run.steps[: len(batches)])


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        pytest.param([(1, 2), (3,)], "missing 1 sample (4)", id="missing"),
        pytest.param([(1, 2), (3, 4, 5)], "extra 1 sample (5)", id="extra"),
        pytest.param([(1, 1), (2, 3, 4)], "extra 1 sample (1)", id="twice-on-one-rank"),
    ],
)
def test_samples_that_are_not_shared_out_are_named(
    shares: list[tuple[int, ...]], said: str
) -> None:
    runs = [trained(share, rank=rank) for rank, share in enumerate(shares)]
    check = checked(evidence(runs, trained((1, 2, 3, 4))), "samples")
    assert check.verdict is Verdict.FAIL
    assert f"step 0: {said}" in check.details


def test_a_step_that_one_rank_takes_beyond_the_others_is_seen() -> None:
    found = evidence([trained((1,)), trained((2,), (9,), rank=1)], trained((1, 2)))
    check = checked(found, "samples")
    assert (check.verdict, check.measured) == (
        Verdict.FAIL,
        "wrong in 1 of 2 steps, first in step 1",
    )
    assert checked(found, "steps").verdict is Verdict.FAIL
