"""Samples, contents, evaluation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpify.verify.recording import Backward, EndRecord, EventRecord, Fetch, RunRecord, StepTaken
from ddpify.verify.verdict import Verdict
from tests.verify.factories import (
    batches,
    checked,
    evidence,
    noisy,
    ranks,
    reference,
    split,
    spoiled,
)


def _without_loader(run: RunRecord) -> RunRecord:
    return replace(
        run, events=tuple(e for e in run.events if not isinstance(e, (Fetch, EndRecord)))
    )


def test_samples_of_no_loader_are_skipped() -> None:
    found = evidence(tuple(map(_without_loader, ranks())), _without_loader(reference()))
    assert checked(found, "samples").verdict is Verdict.SKIPPED
    assert checked(found, "contents").verdict is Verdict.SKIPPED


def test_a_sample_on_two_ranks_is_named_with_its_step() -> None:
    shares = split(2)
    shares[4] = [shares[4][0], [shares[4][0][0], shares[4][1][1]]]
    check = checked(evidence(ranks(shares=shares)), "samples")
    assert check.verdict is Verdict.FAIL
    assert check.measured == "wrong in 1 of 6 steps, first in step 4"
    assert "several ranks train on the same samples" in check.details
    twice = f"step 4: ranks 0 and 1 both train on 1 sample ({shares[4][0][0]})"
    assert twice in check.details


def test_repeats_that_the_reference_has_too_are_padding() -> None:
    """An order that is padded to equal shares takes a sample twice, on both sides."""
    padded = [[batch[0], batch[1], batch[2], batch[0]] for batch in batches()]
    shares = [[batch[0::2], batch[1::2]] for batch in padded]
    one = replace(reference(), events=_fetching(padded))
    assert checked(evidence(ranks(shares=shares), one), "samples").verdict is Verdict.PASS
    assert checked(evidence(ranks(shares=shares)), "samples").verdict is Verdict.FAIL


def _fetching(wanted: list[list[int]]) -> tuple[EventRecord, ...]:
    events: list[EventRecord] = []
    for number, batch in enumerate(wanted):
        known = tuple(f"content {sample}" for sample in batch)
        events.append(Fetch(number, 0.0, 0, number // 3, tuple(batch), known, True))
        events.append(Backward(number, 0.0, 1.0))
        events.append(StepTaken(number, 0.0, number))
    return tuple(events)


def test_every_rank_with_all_samples_is_told_from_a_larger_batch() -> None:
    whole = checked(evidence(ranks(shares=[[b, b] for b in batches()])), "samples")
    assert "each rank goes through the whole data set" in whole.details
    assert "the ranks together take 2 times the batch of one process" in whole.details
    pairs = zip(batches()[0::2], batches()[1::2], strict=True)
    larger = checked(evidence(ranks(shares=[[a, b] for a, b in pairs])), "samples")
    assert "the ranks together take 2 times the batch of one process" in larger.details
    assert "several ranks train on the same samples" not in larger.details


def test_an_epoch_in_the_order_of_the_first_is_seen() -> None:
    shares = split(2)
    check = checked(evidence(ranks(shares=shares[:3] + shares[:3])), "samples")
    assert check.measured == "wrong in 3 of 6 steps, first in step 3"
    assert "the second epoch has the order of the first" in check.details


def test_samples_the_original_never_trains_on_are_named() -> None:
    shares = split(2)
    shares[1] = [[90, 91], shares[1][1]]
    check = checked(evidence(ranks(shares=shares)), "samples")
    assert "never trained on by the original: 90, 91" in check.details


def test_a_validation_loop_that_opens_no_grad_in_its_body_does_not_train() -> None:
    look = (Fetch(6, 9.0, 1, 0, (70, 71), ("a", "b"), True), EndRecord(6, 9.0, 1, 0))
    runs = tuple(replace(run, events=run.events + look) for run in ranks())
    found = evidence(runs, replace(reference(), events=reference().events + look))
    assert checked(found, "samples").verdict is Verdict.PASS
    assert checked(found, "evaluation").measured == "1 pass, whole on every rank"


def test_what_was_fetched_after_the_last_step_of_a_stopped_run_is_chance() -> None:
    late = (Fetch(6, 9.0, 0, 2, (1, 2), ("", ""), True), Backward(6, 9.0, 1.0))
    runs = spoiled(ranks(), 1, events=(*ranks()[1].events, *late))
    assert checked(evidence(runs), "samples").verdict is Verdict.FAIL
    stopped = tuple(replace(run, status="stopped") for run in runs)
    found = evidence(stopped, replace(reference(), status="stopped"))
    assert checked(found, "samples").verdict is Verdict.PASS


def _other_contents(run: RunRecord) -> RunRecord:
    changed = (
        replace(e, contents=tuple(f"{c}!" for c in e.contents)) if isinstance(e, Fetch) else e
        for e in run.events
    )
    return replace(run, events=tuple(changed))


def test_other_contents_fail_unless_the_data_set_draws() -> None:
    runs = tuple(map(_other_contents, ranks()))
    check = checked(evidence(runs), "contents")
    assert (check.verdict, check.measured) == (Verdict.FAIL, "0 of 24 samples alike")
    assert check.details[0].startswith("step 0: sample 0 has another content on rank 0")
    drawing = tuple(_streams(noisy(run, "augmentation"), run.rank) for run in runs)
    noise = evidence(drawing, noisy(reference(), "augmentation"))
    undecided = checked(noise, "contents")
    assert undecided.verdict is Verdict.UNDECIDED
    assert "--neutralise augmentation" in undecided.details[0]
    assert checked(evidence(drawing), "contents").verdict is Verdict.FAIL


def _streams(run: RunRecord, start: int, moves: bool = True) -> RunRecord:
    """A stream that begins at ``start`` and is drawn from in every step."""
    steps = tuple(
        replace(step, random={"torch": f"{start}+{number if moves else 0}"})
        for number, step in enumerate(run.steps)
    )
    return replace(run, steps=steps)


@pytest.mark.parametrize(
    ("noise", "starts", "moves", "verdict"),
    [
        ("dropout", (7, 7), True, Verdict.FAIL),
        ("augmentation", (7, 7), True, Verdict.FAIL),
        ("dropout", (7, 8), True, Verdict.PASS),
        ("dropout", (7, 7), False, Verdict.PASS),  # a seed for each pass is no noise
        ("batchnorm", (7, 7), True, Verdict.PASS),
    ],
)
def test_ranks_that_draw_the_same_noise(
    noise: str, starts: tuple[int, int], moves: bool, verdict: Verdict
) -> None:
    runs = tuple(_streams(noisy(r, noise), starts[r.rank], moves) for r in ranks())
    check = checked(evidence(runs, noisy(reference(), noise)), "contents")
    assert check.verdict is verdict
    assert any("same noise" in line for line in check.details) is (verdict is Verdict.FAIL)


def _evaluating(run: RunRecord, *samples: int) -> RunRecord:
    """Looks at ``samples`` in one pass after training."""
    look = Fetch(6, 9.0, 1, 0, samples, tuple(f"e{s}" for s in samples), False)
    return replace(run, events=(*run.events, look, EndRecord(6, 9.0, 1, 0)))


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        (((0, 2, 4), (1, 3)), Verdict.PASS),
        (((0, 1, 2, 3, 4), (0, 1, 2, 3, 4)), Verdict.PASS),
        (((0, 1, 2, 3, 4), ()), Verdict.PASS),  # rank 0 alone
        (((0, 2, 4), (1, 3, 0)), Verdict.FAIL),  # padded
        (((0, 2), (1, 3)), Verdict.FAIL),
    ],
)
def test_evaluation_sees_each_sample_once(
    shares: tuple[tuple[int, ...], ...], verdict: Verdict
) -> None:
    runs = tuple(
        _evaluating(run, *share) if share else run
        for run, share in zip(ranks(), shares, strict=True)
    )
    check = checked(evidence(runs, _evaluating(reference(), 0, 1, 2, 3, 4)), "evaluation")
    assert check.verdict is verdict


def test_padded_evaluation_names_the_samples_that_count_twice() -> None:
    runs = (_evaluating(ranks()[0], 0, 2, 4), _evaluating(ranks()[1], 1, 3, 0))
    check = checked(evidence(runs, _evaluating(reference(), 0, 1, 2, 3, 4)), "evaluation")
    assert check.details == ("pass 0: 1 too many (samples 0)",)


def test_a_first_batch_may_be_that_of_rank_0() -> None:
    """``next(iter(loader))``: the others' batches are dropped, and one has none at all."""

    def taking(run: RunRecord, *samples: int, after: tuple[int, ...]) -> RunRecord:
        looks = Fetch(6, 9.0, 2, 0, samples, tuple(f"e{s}" for s in samples), False)
        first = looks if samples else EndRecord(6, 9.0, 2, 0)
        return _evaluating(replace(run, events=(*run.events, first)), *after)

    one = taking(reference(), 0, 1, after=(4, 5))
    runs = (taking(ranks()[0], 0, 1, after=(4,)), taking(ranks()[1], after=(5,)))
    assert checked(evidence(runs, one), "evaluation").verdict is Verdict.PASS
    runs = (taking(ranks()[0], 2, 3, after=(4,)), taking(ranks()[1], 0, 1, after=(5,)))
    check = checked(evidence(runs, one), "evaluation")
    assert check.details == ("pass 0: 2 too many (samples 2, 3)",)


def test_a_pass_that_no_run_came_to_the_end_of_is_not_compared() -> None:
    def begun(run: RunRecord) -> RunRecord:
        look = Fetch(6, 9.0, 1, 0, (0, 1), ("e0", "e1"), False)
        return replace(run, status="stopped", events=(*run.events, look))

    check = checked(evidence(tuple(map(begun, ranks())), begun(reference())), "evaluation")
    assert check.verdict is Verdict.SKIPPED
