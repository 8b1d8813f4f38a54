"""Step by step: steps, learning rates, gradients, parameters, loss, ranks, probe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpify.verify import distance
from ddpify.verify.checks import ALL, run_checks
from ddpify.verify.recording import Optimizer, Parameter, ProbeRecord, RunRecord
from ddpify.verify.verdict import Verdict
from tests.verify.factories import (
    BEFORE,
    PARAMETERS,
    PerRank,
    checked,
    evidence,
    job,
    noisy,
    probe,
    ranks,
    reference,
    split,
    spoiled,
)

QUIET = (Verdict.PASS, Verdict.SKIPPED, Verdict.INFO)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_right_run_passes_every_check(world: int) -> None:
    found = run_checks(evidence(ranks(world)))
    assert len(found) == len(ALL) == 18
    assert [check for check in found if check.verdict not in QUIET] == []
    passed = {check.name for check in found if check.verdict is Verdict.PASS}
    assert {"samples", "contents", "gradients", "trajectory", "loss", "probe"} <= passed


def test_gradients_are_measured_against_the_whole_gradient_of_the_step() -> None:
    check = checked(evidence(ranks(gradient=1.5)), "gradients")
    assert check.verdict is Verdict.FAIL
    assert check.measured.startswith("largest relative difference 0.49")  # 0.5 with the bias
    assert "the ranks' gradient is 1.5 times that of one process" in check.details


def test_a_difference_below_the_tolerance_passes_and_one_above_it_does_not() -> None:
    assert checked(evidence(ranks(gradient=1 + 1e-10)), "gradients").verdict is Verdict.PASS
    assert checked(evidence(ranks(gradient=1 + 1e-8)), "gradients").verdict is Verdict.FAIL
    lax = evidence(ranks(gradient=1 + 1e-8), options={"tolerance": 1e-6})
    assert checked(lax, "gradients").verdict is Verdict.PASS


def test_the_trajectory_names_where_the_runs_part_first() -> None:
    check = checked(evidence(ranks(gradient=0.5)), "trajectory")
    assert check.verdict is Verdict.FAIL
    assert check.details[0].startswith("first divergence: step 0, gradient body.weight on rank 0")


def test_wrong_samples_come_before_everything_they_lead_to() -> None:
    shares = split(2)
    shares[2] = [shares[2][0], shares[2][0]]
    check = checked(evidence(ranks(shares=shares)), "trajectory")
    assert check.details[0] == "first divergence: step 2, data: the ranks take other samples"


def test_other_initial_weights_are_named_as_such() -> None:
    other = (BEFORE[0] * 1.5, BEFORE[1])
    check = checked(evidence(ranks(before=other)), "trajectory")
    assert check.verdict is Verdict.FAIL
    assert check.details[0].startswith("first divergence: step 0, initial parameter body.weight")


def test_parameters_are_matched_by_name_where_their_order_differs() -> None:
    turned = tuple(_turned(run) for run in ranks())
    assert checked(evidence(turned), "trajectory").verdict is Verdict.PASS
    assert checked(evidence(turned), "gradients").verdict is Verdict.PASS


def _turned(run: RunRecord) -> RunRecord:
    """With the optimizer's two parameters in the other order."""
    optimizer = run.optimizers[0]
    kept = {"parameters": optimizer.parameters, "initial": optimizer.initial}
    optimizers = (replace(optimizer, **{name: value[::-1] for name, value in kept.items()}),)
    steps = tuple(
        replace(
            s, gradients=s.gradients[::-1], parameters=s.parameters[::-1], digests=s.digests[::-1]
        )
        for s in run.steps
    )
    return replace(run, optimizers=optimizers, steps=steps)


def test_parameters_of_another_shape_cannot_be_compared() -> None:
    shapes = (Parameter("body.weight", (5,), "float64"), PARAMETERS[1])
    runs = tuple(
        replace(r, optimizers=(replace(r.optimizers[0], parameters=shapes),)) for r in ranks()
    )
    check = checked(evidence(runs), "trajectory")
    assert check.verdict is Verdict.FAIL
    assert "other parameters" in check.measured


@pytest.mark.parametrize("noise", ["dropout", "batchnorm", "augmentation"])
def test_noise_leaves_it_undecided_and_says_how_to_decide(noise: str) -> None:
    runs = tuple(noisy(run, noise) for run in _nudged())
    one = noisy(reference(), noise)
    check = checked(evidence(runs, one), "gradients")
    assert check.verdict is Verdict.UNDECIDED
    assert f"--neutralise {noise}" in check.details[0]
    off = evidence(runs, one, options={"neutralise": frozenset({noise})})
    assert checked(off, "gradients").verdict is Verdict.FAIL


def test_batch_statistics_are_no_excuse_where_the_ranks_synchronise_them() -> None:
    """One process counts its batch norm, ranks with SyncBatchNorm do not."""
    check = checked(evidence(_nudged(), noisy(reference(), "batchnorm")), "gradients")
    assert check.verdict is Verdict.FAIL


def test_no_noise_explains_a_gradient_that_is_exactly_half() -> None:
    runs = tuple(noisy(run, "dropout") for run in ranks(gradient=0.5))
    check = checked(evidence(runs, noisy(reference(), "dropout")), "gradients")
    assert check.verdict is Verdict.FAIL


def test_no_noise_explains_ranks_that_differ() -> None:
    runs = tuple(noisy(run, "dropout") for run in ranks(together=False))
    found = evidence(runs, noisy(reference(), "dropout"))
    assert checked(found, "gradients").verdict is Verdict.FAIL
    check = checked(found, "ranks-identical")
    assert check.verdict is Verdict.FAIL
    assert "after step 0: all parameters differ" in check.details[0]


def _nudged() -> tuple[RunRecord, ...]:
    """All ranks' first gradient is off in one element, as other dropout masks would make it."""
    runs = []
    for run in ranks():
        first = run.steps[0]
        gradients = (first.gradients[0] + np.array([0.1, 0, 0, 0]), first.gradients[1])
        runs.append(replace(run, steps=(replace(first, gradients=gradients), *run.steps[1:])))
    return tuple(runs)


def test_ranks_that_begin_apart_are_named_before_any_step() -> None:
    own = PerRank(lambda rank: (BEFORE[0] + rank, BEFORE[1]))
    check = checked(evidence(ranks(before=own)), "ranks-identical")
    assert check.measured == "differ from the start"
    assert check.details == ("before the first step: 1 of 2 parameters differ (body.weight)",)


def test_loss_is_the_mean_over_the_ranks() -> None:
    apart = PerRank(lambda rank: lambda _step, value: value + (0.25 if rank else -0.25))
    assert checked(evidence(ranks(loss=apart)), "loss").verdict is Verdict.PASS
    late = evidence(ranks(loss=lambda step, value: value * (1.5 if step == 3 else 1)))
    check = checked(late, "loss")
    assert check.verdict is Verdict.FAIL
    assert "first: step 3, loss (0.5)" in check.details


def test_losses_that_are_no_numbers_on_both_sides_are_equal() -> None:
    def broken(step: int, value: float) -> float:
        return float("nan") if step == 4 else value

    one = reference()
    steps = tuple(replace(s, losses=(broken(n, s.losses[0]),)) for n, s in enumerate(one.steps))
    found = evidence(ranks(loss=broken), replace(one, steps=steps))
    assert checked(found, "loss").verdict is Verdict.PASS
    assert checked(evidence(ranks(loss=broken)), "loss").verdict is Verdict.FAIL


def test_learning_rates_are_compared_on_every_rank() -> None:
    own = PerRank(lambda rank: lambda step: 0.05 if rank and step > 2 else 0.1)
    check = checked(evidence(ranks(rate=own)), "learning-rates")
    assert (check.verdict, check.measured) == (Verdict.FAIL, "differ from step 3 on")
    assert check.details == ("one process: 0.1", "rank 0: 0.1", "rank 1: 0.05")


def test_a_step_too_few_on_one_rank_fails() -> None:
    runs = ranks()
    check = checked(evidence(spoiled(runs, 1, steps=runs[1].steps[:-1])), "steps")
    assert check.verdict is Verdict.FAIL
    assert check.details == ("SGD: 6 in one process, 5 on rank 1",)


def test_steps_of_ranks_that_were_killed_are_not_counted() -> None:
    runs = tuple(replace(r, steps=r.steps[:2], status="running", exit_code=None) for r in ranks())
    found = evidence(job(runs, hung=True))
    assert checked(found, "steps").verdict is Verdict.SKIPPED
    assert checked(found, "trajectory").measured.endswith("2 steps")
    assert checked(found, "samples").verdict is Verdict.PASS


def test_the_probe_is_compared_between_ranks_and_with_the_reference() -> None:
    runs = ranks()
    output = runs[0].probe
    assert output is not None
    assert output.output is not None
    off = tuple(replace(r, probe=probe(output.output * 1.01)) for r in runs)
    check = checked(evidence(off), "probe")
    assert (check.verdict, check.measured[:29]) == (
        Verdict.FAIL,
        "relative difference 0.0099, t"[:29],
    )
    buffers = checked(evidence(spoiled(runs, 1, probe=probe(output.output + 1))), "probe")
    assert buffers.measured == "differs between ranks"
    assert "buffers" in buffers.details[0]


def test_a_probe_that_could_not_be_taken_is_skipped_with_the_reason() -> None:
    runs = spoiled(ranks(), 1, probe=ProbeRecord(None, "", "no module was called"))
    check = checked(evidence(runs), "probe")
    assert (check.verdict, check.measured) == (Verdict.SKIPPED, "no module was called")


def test_distances_see_a_bias_that_started_at_zero_and_no_noise_around_it() -> None:
    big, zero = np.full(10_000, 0.03), np.zeros(10)
    kinds = (Parameter("w", (100, 100), ""), Parameter("b", (10,), ""))
    noise = distance.parameter_differences(kinds, (big, zero), (big, zero + 1e-15))
    assert max(noise) < 1e-9
    lost = distance.parameter_differences(kinds, (big, zero + 1e-4), (big, zero))
    assert lost[1] > 0.1


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        pytest.param([1.0, 2.0], [1.0, 2.0], 0.0, id="equal"),
        pytest.param([0.0, 0.0], [0.0, 0.5], 1.0, id="from-zero"),
        pytest.param([np.nan, 1.0], [1.0, 1.0], np.inf, id="one-nan"),
        pytest.param([np.inf, 1.0], [1.0, 1.0], np.inf, id="one-infinite"),
        pytest.param([np.inf, 1.0], [-np.inf, 1.0], np.inf, id="opposite-infinities"),
        pytest.param([np.inf, 1.0], [np.inf, 1.0], 0.0, id="both-infinite"),
        pytest.param([np.nan, np.inf], [np.nan, np.inf], 0.0, id="nan-and-infinite"),
        pytest.param([1.0, np.nan], [1.0, np.inf], np.inf, id="nan-or-infinite"),
        pytest.param([1.0, 1.0], [1.0, 1.0, 1.0], np.inf, id="shapes"),
    ],
)
def test_relative_differences(left: list[float], right: list[float], difference: float) -> None:
    assert distance.relative(np.array(left), np.array(right)) == difference


def test_an_optimizer_that_appears_later_is_compared_from_its_first_step() -> None:
    """As that of a discriminator: its initial parameters are those before its own first step."""

    def two(run: RunRecord) -> RunRecord:
        first = run.optimizers[0]
        late = Optimizer(1, "Adam", first.parameters, run.steps[2].parameters, run.steps[2].digests)
        steps = tuple(replace(s, optimizer=int(n > 2)) for n, s in enumerate(run.steps))
        return replace(run, optimizers=(first, late), steps=steps)

    right = evidence(tuple(map(two, ranks())), two(reference()))
    assert checked(right, "trajectory").verdict is Verdict.PASS
    assert checked(right, "steps").verdict is Verdict.PASS
