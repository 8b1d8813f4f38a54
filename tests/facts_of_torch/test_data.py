"""What samplers and loaders give to each rank, and which draws ranks share."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("data")


def test_a_sampler_that_is_not_told_the_epoch_repeats_its_order(seen: Seen) -> None:
    for found in seen["orders"]:
        assert (found["untold"], found["constant"], found["told"]) == (1, 1, 3)
        assert found["within"], "told within a pass, it is for the next"
        assert found["shares"]


def test_only_samplers_have_set_epoch(seen: Seen) -> None:
    for found in seen["asked_of_others"]:
        assert found["loader"].startswith("AttributeError")
        assert found["batch sampler"].startswith("AttributeError")
        assert found["its sampler"] == ""


def test_iterators_of_loaders_have_no_next_method(seen: Seen) -> None:
    assert seen["old_iterators"] == [[[False, 0]] * 2] * 2


def test_sampler_and_shuffle_exclude_each_other(seen: Seen) -> None:
    text = "ValueError: sampler option is mutually exclusive with shuffle"
    assert seen["sampler_and_shuffle"] == [[text, ""]] * 2


def test_without_a_sampler_each_rank_has_all_samples_in_one_order(seen: Seen) -> None:
    assert seen["without_a_sampler"] == [[4, True, True]] * 2


def test_batches_of_a_rank_are_as_large_as_the_loader_says(seen: Seen) -> None:
    for found in seen["batch_sizes"]:
        assert found == {"batch": [4, 4], "lengths": [2, 8, 16]}


def test_a_schedule_of_all_batches_is_left_half_way(seen: Seen) -> None:
    assert seen["schedule_of_all_batches"] == [0.5, 0.5]


def test_the_sampler_repeats_the_first_samples(seen: Seen) -> None:
    first, second = seen["padded"]
    assert (first["own"], second["own"]) == ([0, 2, 4], [1, 3, 0])
    assert first["accuracy"] == second["accuracy"] == 0.667


def test_streams_are_read_by_every_rank_and_every_worker(seen: Seen) -> None:
    for found in seen["streams"]:
        assert found["sampler"].startswith("ValueError: DataLoader with IterableDataset")
        assert found["read"] == [0, 1, 2, 3]
        assert found["two workers"] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_length_of_a_data_set_is_that_of_all(seen: Seen) -> None:
    assert seen["full_length_divisor"] == [[0.5, 1.0]] * 2


def test_seeds_of_samplers_per_rank_miss_samples(seen: Seen) -> None:
    assert seen["seeds_of_samplers"] == [[[73, 27], [100, 0]]] * 2


def test_a_split_per_rank_trains_on_what_another_holds_out(seen: Seen) -> None:
    for found in seen["splits"]:
        assert found == {"trained elsewhere": [3, 4], "generator": True}


def test_indices_of_other_lists_are_other_samples(seen: Seen) -> None:
    for found in seen["data_of_each_rank"]:
        assert found == {"seventh": ["7.png", "0.png"], "twice": 4, "never": 4}


def test_one_seed_is_one_draw_in_workers_too(seen: Seen) -> None:
    for found in seen["one_stream"]:
        assert found == {"alike": [True, True, True], "seed + rank": 2}


def test_a_restored_stream_is_one_mask(seen: Seen) -> None:
    assert seen["restored_stream"] == [[2, 1]] * 2


def test_shapes_of_the_global_batch_fail_or_mix(seen: Seen) -> None:
    for found in seen["shapes"]:
        assert found["noise"].startswith("RuntimeError")
        assert found["labels"].startswith("ValueError")
        assert (found["mixed"], found["two samples of one"]) == ([8, 3], True)


def test_an_evaluation_of_all_is_the_sum_of_dealt_ones(seen: Seen) -> None:
    (first, one), (second, other) = seen["evaluations"]
    assert first == second == [5, 6], "both have seen all, and have the same"
    assert [a + b for a, b in zip(one, other, strict=True)] == first
    assert one[1] == other[1] == 3, "each has half of the work"
