"""What DistributedDataParallel knows of a model: what it was when it was made."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS
OWN = ([1.0], [2.0])
LATE = "RuntimeError: Expected to have finished reduction"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("wrapper")


def test_gradients_are_averaged_in_backward_of_the_wrapper(seen: Seen) -> None:
    for rank, iterations in enumerate(seen["averaged"]):
        assert iterations["bare"] == [[rank + 1.0]] * 2
        assert iterations["wrapped"] == [[1.5]] * 2


def test_an_unused_parameter_stops_the_second_iteration(seen: Seen) -> None:
    assert seen["unused"] == [[[1.0, None], LATE], [[2.0, None], LATE]]


def test_with_any_parameter_unused_none_is_averaged_in_the_first_iteration(seen: Seen) -> None:
    for rank, found in enumerate(seen["unused_anywhere"]):
        own = rank + 1.0
        assert found["ab"] == [[own, own, None], LATE]
        assert found["bc"] == [[None, own, own], LATE]
        assert found["ac"] == [[own, None, own], LATE]


def test_what_replaces_a_layer_is_not_averaged_and_the_old_one_counts_as_unused(seen: Seen) -> None:
    assert seen["replaced"] == [[[1.0, 1.0], LATE], [[2.0, 2.0], LATE]]


def test_what_is_added_is_never_averaged(seen: Seen) -> None:
    assert seen["added"] == [[[1.5, 1.0]] * 2, [[1.5, 2.0]] * 2]


def test_what_is_unfrozen_later_is_never_averaged(seen: Seen) -> None:
    assert seen["unfrozen"] == [[[1.5, 1.0]] * 2, [[1.5, 2.0]] * 2]


def test_what_is_frozen_later_is_waited_for(seen: Seen) -> None:
    assert seen["frozen"] == [[[1.0, None], LATE], [[2.0, None], LATE]]


def test_a_cast_gives_new_storage_that_is_not_averaged(seen: Seen) -> None:
    for rank, found in enumerate(seen["moved"]):
        assert found["double"] == found["there and back"] == [False, rank + 1.0]
        assert found["to the same"] == [True, 1.5]


def test_two_wrappers_are_accepted_and_reduce_twice(seen: Seen) -> None:
    for found in seen["nested"]:
        assert found["DDP twice"] == [[1.5], 1, 1, 2], "and DDP once reduces once more"
        assert found["DataParallel"] == [[3.0]], "1.5 of two backwards"


def test_ddp_of_shards_ends_with_an_error(seen: Seen) -> None:
    errors = [found["DDP of shards"] for found in seen["nested"]]
    assert all(error.startswith("NotImplementedError") for error in errors)
    assert issubclass(NotImplementedError, RuntimeError)


def test_shards_of_ddp_train_as_shards(seen: Seen) -> None:
    """The weights are sharded and averaged by FSDP; DDP's all-reduces are not made."""
    for found in seen["sharded_wrapper"]:
        assert found["gradients"] == [[[1.5, 1.5]] * 2, []]
        assert found["keys"] == ["module.layers.a.weight", "module.layers.b.weight"]
    assert [found["rows"] for found in seen["sharded_wrapper"]] == [[1, 1], [0, 0]]


def test_the_wrapper_is_another_module(seen: Seen) -> None:
    for found in seen["attributes"]:
        for asked in ("attribute", "method"):
            assert "AttributeError: 'DistributedDataParallel' object" in found[asked]
        assert found["children"] == ["Sum"]
        assert found["names"] == ["module.layers.a.weight"]
        assert found["assigned"] is False


def test_sync_batch_norms_put_in_later_have_the_tensors_that_the_wrapper_knows(seen: Seen) -> None:
    for found in seen["sync_batch_norm"]:
        assert found["in place"] == [True, "SyncBatchNorm"]
        assert found["the same tensors"] == found["noted"] == [True, True]
        assert found["CPU"] == "ValueError: SyncBatchNorm layers only work with GPU modules"
        assert "ValueError: SyncBatchNorm expected input tensor" in found["CPU later"]


def test_what_stands_beside_the_wrapper_is_each_ranks_own(seen: Seen) -> None:
    first, second = seen["beside"]
    assert first["inside"] == second["inside"]
    assert (first["head"], second["head"]) == OWN
    assert (first["loose"], second["loose"]) == (1.0, 2.0)
    assert first["drawn"] != second["drawn"]


def test_device_ids_are_not_for_the_cpu(seen: Seen) -> None:
    text = "device_ids and output_device arguments only work with single-device/multiple-device GPU"
    for found in seen["devices"]:
        for given in ("number", "cpu"):
            assert found[given].startswith("ValueError")
            assert f"{text} modules or CPU modules" in found[given]
        assert (found["none"], found["empty"]) == ("", "")


def test_weights_are_sent_once_at_the_wrap(seen: Seen) -> None:
    first, second = seen["drawn_again"]
    assert first["own"] != second["own"]
    assert first["sent"] == second["sent"] == first["own"]
    assert first["again"] != second["again"]
    apart = first["again"] - second["again"]
    assert first["stepped"] - second["stepped"] == pytest.approx(apart), "parameters never meet"


def test_what_the_first_forward_adds_is_each_ranks_own(seen: Seen) -> None:
    first, second = seen["made_late"]
    assert first["values"] != second["values"]
    assert (first["gradients"], second["gradients"]) == ([1.0, 1.5], [2.0, 1.5])
    assert "Modules with uninitialized parameters can't be used" in first["lazy"]


def test_a_state_of_the_wrapper_fits_no_plain_model(seen: Seen) -> None:
    for found in seen["states"]:
        assert found["keys"] == found["DataParallel"] == ["module.layers.a.weight"]
        assert "Unexpected key(s)" in found["plain"]
        assert found["not strict"] == [1.0, ["module.layers.a.weight"]], "nothing was loaded"
        assert "Missing key(s)" in found["into the wrapper"]


def test_a_pickled_wrapper_needs_a_process_group(seen: Seen) -> None:
    for inside, outside in seen["pickled"]:
        assert inside == "DistributedDataParallel"
        assert "Default process group has not been initialized" in outside


def test_models_of_other_widths_are_refused_at_the_wrap(seen: Seen) -> None:
    first, second = seen["other_widths"]
    assert "params[0] in this process with sizes [3, 2] appears not to match" in second
    assert "RuntimeError" in first
    assert "onnection" in first, "it loses its peer"
