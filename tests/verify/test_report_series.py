"""The numbers behind the curves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ddpify.verify.report import series
from ddpify.verify.report.series import Series
from tests.verify import samples


def line(values: list[float]) -> Series:
    return Series.of(enumerate(values))


def test_a_step_follows_the_sum_of_what_backward_was_called_on() -> None:
    run = samples.job(1, 3).runs[0]
    steps = (
        replace(run.steps[0], losses=(1.0, 2.5)),
        replace(run.steps[1], losses=()),
        replace(run.steps[2], losses=(math.nan,)),
    )
    found = series.losses(replace(run, steps=steps))
    assert found.steps.tolist() == [0, 2]
    assert found.values[0] == 3.5
    assert math.isnan(found.values[1])


def test_optimizers_have_series_of_their_own() -> None:
    run = samples.job(1, 9, None, 3).runs[0]
    assert series.losses(run, 1).steps.tolist() == [1, 4, 7]
    assert series.losses(run).steps.tolist() == list(range(9))


def test_the_mean_is_of_steps_that_all_ranks_took() -> None:
    one = Series.of([(0, 1.0), (1, 2.0), (2, 3.0)])
    other = Series.of([(1, 4.0), (2, math.inf), (3, 9.0)])
    found = series.mean((one, other))
    assert found.steps.tolist() == [1, 2]
    assert found.values.tolist() == [3.0, math.inf]
    opposite = series.mean((line([math.inf]), line([-math.inf])))
    assert math.isnan(opposite.values[0])
    assert not len(series.mean(()).steps)


def test_differences_are_those_of_the_worst_rank() -> None:
    verification = samples.passing(4, 4)
    runs = verification.distributed.runs
    step = runs[2].steps[1]
    changed = replace(
        step,
        parameters=(step.parameters[0] * 1.5, *step.parameters[1:]),
        digests=("other", *step.digests[1:]),
    )
    spoiled = replace(runs[2], steps=(runs[2].steps[0], changed, *runs[2].steps[2:]))
    found = series.differences(verification.reference.runs[0], (*runs[:2], spoiled, runs[3]))
    assert [one.step for one in found] == [0, 1, 2, 3]
    assert found[1].name == "encoder.weight"
    assert found[1].rank == 2
    assert found[1].difference == pytest.approx(0.5)
    assert all(one.difference < 1e-12 for one in found if one.step != 1)


def test_many_points_become_few_and_no_spike_is_lost() -> None:
    values = np.sin(np.arange(5000) / 300)
    values[[1234, 3000]] = 50.0, math.nan
    found = series.thin(Series(np.arange(5000), values))
    assert len(found.steps) < 700
    assert {0, 1234, 3000, 4999} <= set(found.steps.tolist())
    assert np.all(np.diff(found.steps) > 0)
    short = line([1.0, 2.0])
    assert series.thin(short) is short


def test_a_smoothed_curve_keeps_its_course_and_its_start() -> None:
    noise = np.where(np.arange(5000) % 2, 0.5, -0.5)
    found = series.smooth(Series(np.arange(5000), np.linspace(10, 0, 5000) + noise))
    assert len(found.steps) <= 301
    assert found.values[0] == pytest.approx(9.5)
    assert np.all(np.abs(found.values[1:] - np.linspace(10, 0, 5000)[found.steps[1:]]) < 0.1)
    empty = series.smooth(Series(np.arange(5000), np.full(5000, math.nan)))
    assert not np.isfinite(empty.values).any()
