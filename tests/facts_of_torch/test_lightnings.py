"""What Lightning deals, reduces and waits for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of
from tests.support.torchrun import finish, start

pytest.importorskip("lightning")
pytestmark = MARKS
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("lightnings")


def test_logged_numbers_are_of_each_rank_unless_they_are_synchronised(seen: Seen) -> None:
    first, second = seen["logged"]
    assert (first["own"], second["own"]) == (7.0, 8.0)
    assert first["synced"] == second["synced"] == first["metric"] == second["metric"] == 7.5
    assert (first["kept"], second["kept"]) == (49.0, 56.0)


def test_rank_zero_only_reduces_nothing(seen: Seen) -> None:
    assert [found["both"] for found in seen["logged"]] == [7.0, 8.0]


def test_samples_of_an_evaluation_are_repeated(seen: Seen) -> None:
    assert seen["repeated"] == [[1.0, 3.0, 5.0], [2.0, 4.0, 1.0]]


def test_prepare_data_is_called_on_one_process(seen: Seen) -> None:
    assert [found["rows"] for found in seen["prepared"]] == [True, False]


def test_batches_stay_and_steps_are_halved(seen: Seen) -> None:
    assert [(found["steps"], found["samples"]) for found in seen["prepared"]] == [(2, 8)] * 2


def test_rank_zero_only_gives_none_elsewhere(seen: Seen) -> None:
    first, second = seen["of_rank_zero"]
    assert (first["made"], first["used"]) == ([1], "")
    assert (second["made"], second["used"]) == (None, "TypeError")


def test_before_fit_a_broadcast_gives_what_each_has(seen: Seen) -> None:
    assert [found["broadcast"] for found in seen["of_rank_zero"]] == [0, 1]
    assert [found["group"] for found in seen["of_rank_zero"]] == [False, False]


def test_a_loader_that_is_asked_for_is_as_long_as_on_one_device(seen: Seen) -> None:
    assert seen["asked_length"] == [[4, 2, 2]] * 2


def test_a_loader_that_a_callback_puts_there_is_not_dealt(seen: Seen) -> None:
    first, second = seen["exchanged"]
    assert not {*first[0]} & {*second[0]}
    assert first[1] == second[1] == [1.0, 2.0, 3.0, 4.0]


def test_a_sum_of_a_step_is_averaged(seen: Seen) -> None:
    assert seen["summed"] == [[4.0], [4.0]], "8 on one process"


def test_model_parallel_strategy_shards_nothing_itself(seen: Seen) -> None:
    for error in seen["without_configure_model"]:
        assert error.startswith("TypeError")
        assert "`configure_model()`" in error


def test_between_steps_weights_are_parts(seen: Seen) -> None:
    assert seen["sharded_weights"] == [[1.0, "DTensor"]] * 2, "1.4142 is the norm of both rows"
    assert all(error.startswith("RuntimeError") for error in seen["average_of_shards"])


def test_processes_that_lightning_starts_come_later_and_have_one_folder(tmp_path: Path) -> None:
    job = start([sys.executable, str(SCRIPTS / "lightning_start.py")], tmp_path)
    out, err = finish(job, 240)
    assert job.returncode == 0, out + err
    first, second = (json.loads((tmp_path / f"seen{n}.json").read_text()) for n in range(2))
    assert second["first line"] - first["first line"] > 1
    for found in (first, second):
        assert found["broadcast"] == found["first line"], "of each process"
    assert first["folder"] == second["folder"]
