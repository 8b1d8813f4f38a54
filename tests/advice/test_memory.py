"""The table of memory, by hand."""

from __future__ import annotations

from dataclasses import replace

from ddpify.advice import memory
from ddpify.advice.model import Measured, Row, Sharding

ROW = Row("measured", 4, 8, (2, 2, 2, 2), 2, (), 8)
MEASURED = Measured(
    device="cpu",
    torch="2",
    parameters=1000,
    buffers=10,
    trainable=900,
    gradients=800,
    state=1600,
    batch=8,
    inputs=80,
    saved=4000,
    outputs=160,
    shared=40,
    loss=240,
)


def sizes(parallel: bool) -> dict[str, tuple[int | None, int | None, int | None]]:
    rows = memory.memory(ROW, parallel, MEASURED)
    return {
        row.what: (row.first.size, row.others and row.others.size, row.after.size) for row in rows
    }


def test_data_parallel_by_hand() -> None:
    """Outputs, loss and the batch are whole on the first GPU; the others hold no state."""
    assert sizes(parallel=True) == {
        "parameters": (1000, 1000, 1000),
        "buffers": (10, 10, 10),
        "gradients": (800, 800, 800),
        "optimizer state": (1600, None, 1600),
        "gradients, again": (800, None, 900),
        "batch": (80, 20, 20),
        "kept for backward": (1000, 1000, 1000),
        "outputs": (160, None, 30),
        "kept by the loss": (240, None, 60),
    }
    rows = memory.memory(ROW, True, MEASURED)
    assert memory.total(rows) == (5690, 2830, 5420)


def test_one_gpu_by_hand() -> None:
    assert sizes(parallel=False) == {
        "parameters": (1000, None, 1000),
        "buffers": (10, None, 10),
        "gradients": (800, None, 800),
        "optimizer state": (1600, None, 1600),
        "gradients, again": (None, None, 900),
        "batch": (80, None, 20),
        "kept for backward": (4000, None, 1000),
        "outputs": (120, None, 30),
        "kept by the loss": (240, None, 60),
    }
    assert memory.total(memory.memory(ROW, False, MEASURED)) == (7850, None, 5420)


def test_the_largest_batch_is_the_last_that_fits() -> None:
    """One sample takes 10 + 500 + 15 + 30 = 555 bytes, and 4310 are there whatever it is."""
    found = memory.fit(ROW, False, MEASURED)
    assert found is not None
    assert (found.peak, found.after, found.per_rank) == (7850, 5420, 6)
    assert 4310 + 6 * 555 <= 7850 < 4310 + 7 * 555
    assert found.global_batch == 24


def test_without_a_measurement_there_are_formulas_only() -> None:
    rows = memory.memory(ROW, True, None)
    assert memory.total(rows) is None
    assert [row.first.formula for row in rows] == "P F G S G X(B) A(b1) O(B) L(B)".split()
    assert [row.after.formula for row in rows] == "P F G S T X(b) A(b) O(b) L(b)".split()


def test_data_parallel_may_leave_gpus_without_samples() -> None:
    short = Row("measured", 4, 1, (1,), None, (4,))
    rows = memory.memory(short, True, MEASURED)
    kept = next(row for row in rows if row.what == "kept for backward")
    assert kept.others is not None
    assert (kept.first.size, kept.others.size, kept.after.size) == (500, 0, None)
    assert memory.total(rows) is None
    assert memory.fit(short, True, MEASURED) is None


def test_shards_by_hand() -> None:
    """A quarter of what every replica has, and one block whole, whose size is not measured."""
    rows = memory.memory(ROW, False, MEASURED, Sharding())
    after = {row.what: (row.after.formula, row.after.size) for row in rows}
    assert after["parameters"] == ("P/N", 250)
    assert after["buffers"] == ("F", 10)
    assert after["gradients"] == ("G/N", 200)
    assert after["optimizer state"] == ("S/N", 400)
    assert after["gradients, again"] == ("2T", None)
    assert after["weights, whole"] == ("2P", None)
    assert after["kept for backward"] == ("A(b)", 1000)
    assert memory.total(rows) is None
    stacked = Sharding((("Net", "layers"),))
    for sharding, gradients in ((stacked, "R+2U"), (replace(stacked, accumulates=True), "T+U")):
        formulas = [row.after.formula for row in memory.memory(ROW, False, None, sharding)]
        assert formulas[4:6] == ["R+3U", gradients]


def test_offloaded_shards_are_not_on_the_gpu() -> None:
    rows = memory.memory(ROW, False, MEASURED, Sharding(offload=True))
    after = {row.what: (row.after.formula, row.after.size) for row in rows}
    kept = ("parameters", "gradients", "optimizer state")
    assert [after[one] for one in kept] == [("", None)] * 3
    assert after["buffers"] == ("F", 10)


def test_the_example_of_seed_003() -> None:
    """7 billion parameters, float32, Adam: 112 GB on each replica, 14 GB on each of 8 shards."""
    billion = 10**9
    seven = replace(MEASURED, parameters=28 * billion, gradients=28 * billion, state=56 * billion)
    kept = ("parameters", "gradients", "optimizer state")
    for shards, expected in ((False, 112 * billion), (True, 14 * billion)):
        rows = memory.memory(replace(ROW, ranks=8), False, seven, Sharding() if shards else None)
        assert sum(row.after.size or 0 for row in rows if row.what in kept) == expected
