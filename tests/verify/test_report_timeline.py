"""The ranks' timeline: one clock for all, thousands of calls in few marks, the end of a hang."""

from __future__ import annotations

from dataclasses import replace

from ddpify.verify.recording import RunRecord, WaitRecord
from ddpify.verify.report.timeline import Lane, timeline
from tests.verify import samples


def kinds(lane: Lane) -> list[str]:
    return [one.kind for one in lane.stretches]


def test_lanes_share_a_clock_and_fill_their_width() -> None:
    found = timeline(samples.job(2, 24))
    assert found is not None
    assert not found.last, "it ended well"
    first, second = found.lanes
    assert kinds(first)[:5] == ["start", "train", "evaluate", "train", "evaluate"]
    assert first.stretches[0].left == 0
    assert second.stretches[0].left > 0, "it began a tenth of a second later"
    ends = [max(one.left + one.width for one in lane.stretches) for lane in found.lanes]
    assert round(max(ends), 3) == 100
    assert first.stretches[1].text == "trains, 0.40 to 0.63 s"


def test_many_short_collectives_are_few_marks() -> None:
    (run,) = samples.job(1, 2).runs
    waits = tuple(
        WaitRecord("all_reduce", "train.py:9", n * 1e-4, n * 1e-4 + 1e-5) for n in range(4000)
    )
    found = timeline(replace(samples.job(1, 2), runs=(replace(run, waits=waits),)))
    assert found is not None
    marks = [one for one in found.lanes[0].stretches if one.kind == "wait"]
    assert len(marks) < 1000
    assert sum("and" in mark.text for mark in marks)


def test_who_hangs_is_stuck_to_the_end_and_its_last_moments_are_told() -> None:
    found = timeline(samples.hung().distributed)
    assert found is not None
    for lane in found.lanes:
        stuck = lane.stretches[-1]
        assert (stuck.kind, stuck.text) == ("stuck", "waits in all_reduce at train.py:67")
        assert round(stuck.left + stuck.width, 3) == 100
    assert [moment.seconds for moment in found.last] == sorted(one.seconds for one in found.last)
    assert found.last[-1].text == "all_reduce at train.py:67, and is still in it"
    assert {one.text for one in found.last} >= {"optimizer step 6", "takes a batch of 8 (loader 0)"}


def test_where_nothing_was_recorded_there_is_none() -> None:
    assert timeline(replace(samples.job(2, 1), runs=(RunRecord(),))) is None
