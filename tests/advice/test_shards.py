"""What ranks keep of parameters that are shared out, and which of them are gathered together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ddpify.advice import memory, shards
from ddpify.advice.model import Load, Measured, Row, Sharding, Weight
from ddpify.advice.scaling import RANKS, scales

BLANK = Measured(
    device="cpu",
    torch="2",
    parameters=0,
    buffers=0,
    trainable=0,
    gradients=0,
    state=0,
    batch=8,
    inputs=80,
    saved=4000,
    outputs=160,
    shared=40,
    loss=240,
)
KINDS = {"embedding": "Embedding", "encoder": "Encoder", "layers": "ModuleList"}
KINDS |= {"linear": "Linear", "norm": "LayerNorm"}
STACK = Sharding((("Net", "encoder.layers"),))


def weight(name: str, rows: int, columns: int = 1, trained: bool = True) -> Weight:
    """In float32, with Adam."""
    size = 4 * rows * columns
    kept = size if trained else 0
    kinds = ("Net", *(KINDS.get(part, "Block") for part in name.split(".")[:-1]))
    return Weight(name, kinds, 0, rows, size, 4, trained, kept, 2 * kept, 4 if trained else 0)


def measured(*weights: Weight) -> Measured:
    return replace(
        BLANK,
        weights=weights,
        parameters=sum(one.size for one in weights),
        trainable=sum(one.size for one in weights if one.trained),
        gradients=sum(one.gradient for one in weights),
        state=sum(one.state + one.scalars for one in weights),
    )


LAYERS = [weight(f"encoder.layers.{n}.linear.weight", 10, 3) for n in range(3)]
NET = measured(weight("embedding.weight", 50, 2), *LAYERS, weight("encoder.norm.weight", 5))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 64, 100])
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 1024])
def test_the_largest_piece_is_the_first_chunk(rows: int, ranks: int) -> None:
    """As ``fully_shard`` cuts: with ``torch.chunk``; the others are padded to it."""
    one = measured(weight("encoder.weight", rows, 3))
    chunk = torch.chunk(torch.empty(rows, 3), ranks)[0]
    held = shards.held(one, Sharding(), ranks)
    assert held.parameters == held.gradients == 4 * chunk.numel()
    assert held.state == 2 * held.parameters + 4, "the count of steps is on each rank"
    assert shards.padded(one, ranks, lambda w: w.size) == ranks * 4 * chunk.numel()


def test_units_are_the_blocks_and_the_rest() -> None:
    found = {(one.path, one.size) for one in shards.units(NET, STACK)}
    assert found == {
        ("", 4 * (100 + 5)),
        *((f"encoder.layers.{n}", 4 * 30) for n in range(3)),
    }


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        pytest.param(Sharding(), {""}, id="no-blocks"),
        pytest.param(Sharding((("Other", "encoder.layers"),)), {""}, id="of-another-class"),
        pytest.param(Sharding((("Encoder", "layers"),)), {"", "encoder.layers.0"}, id="a-part"),
        pytest.param(Sharding(wrap=("Block",)), {"", "encoder.layers.0"}, id="by-class"),
        pytest.param(Sharding(wrap=("Encoder",)), {"", "encoder"}, id="by-outer-class"),
        pytest.param(
            Sharding(wrap=("Encoder", "Linear")),
            {"", "encoder", "encoder.layers.0.linear"},
            id="innermost",
        ),
    ],
)
def test_a_unit_is_named_by_its_path(sharding: Sharding, expected: set[str]) -> None:
    found = {one.path for one in shards.units(NET, sharding)}
    assert {path for path in found if "1" not in path and "2" not in path} == expected


def test_what_is_whole_for_a_time_by_hand() -> None:
    """R is 420 bytes, U 120; over 4 ranks the buffers are padded to 3 rows of 3, and 13 of 2."""
    found = shards.held(NET, STACK, 4)
    buffer, rest_buffer = 4 * (4 * 3 * 3), 4 * 4 * (13 * 2 + 2)
    assert found.gathered == 420 + max(120 + 2 * buffer, rest_buffer)
    assert found.reduced == 420 + max(120 + buffer, rest_buffer)
    alone = shards.held(NET, Sharding(), 5)
    assert alone.gathered == alone.reduced == 2 * 780, "one unit, and the buffer it comes from"
    kept = shards.held(NET, replace(STACK, accumulates=True), 5)
    assert kept.gathered == 420 + max(3 * 120, 420)
    assert kept.reduced == 780 + 420, "all gradients, until the last backward"


def test_frozen_weights_are_gathered_and_not_reduced() -> None:
    frozen = measured(*LAYERS[:2], weight("embedding.weight", 50, 2, trained=False))
    (load,) = scales(frozen, STACK, (5,))
    sent = {one.what: one.cell.size for one in load.fsdp.sent}
    assert sent == {"gathered": 2 * 4 * 640 // 5, "reduced": 4 * 240 // 5}
    assert load.ddp.sent[0].cell.size == 2 * 4 * 240 // 5


def test_what_is_in_no_module_stays_whole() -> None:
    loose = replace(NET, parameters=NET.parameters + 100, gradients=NET.gradients + 100)
    more, less = shards.held(loose, STACK, 4), shards.held(NET, STACK, 4)
    assert more.parameters - less.parameters == more.gradients - less.gradients == 100


# -- the examples of the seeds -------------------------------------------------------------------

BILLION = 10**9
SEVEN = measured(weight("encoder.weight", 7 * BILLION))
BERT = measured(weight("encoder.weight", 110 * 10**6))


def test_seven_billion_parameters_with_adam() -> None:
    """112 GB on each replica, 14 GB on each of 8 shards; DDP's buckets are 28 GB besides."""
    found = {one.ranks: one for one in scales(SEVEN, Sharding())}
    assert tuple(found) == RANKS
    assert kept(found[8].ddp) == pytest.approx(112 * BILLION, rel=1e-9)
    assert kept(found[8].fsdp) == pytest.approx(14 * BILLION, rel=1e-9)
    assert found[8].ddp.whole.size == 28 * BILLION
    ddp, gathered, reduced = (one.cell.size for one in (*found[8].ddp.sent, *found[8].fsdp.sent))
    assert (ddp, gathered, reduced) == (49 * BILLION, 49 * BILLION, 24.5 * BILLION)
    assert not found[1].ddp.sent[0].cell.formula, "one rank sends nothing"
    assert kept(found[1].fsdp) == kept(found[1].ddp)


def test_bert() -> None:
    """110 million of each are 440 MB, 220 MB over 2; half of it is gathered in bfloat16.

    The seed's 110 MB for a shard with mixed precision are not FSDP2's: shards stay float32.
    """
    _, two, *_ = scales(BERT, Sharding())
    million = 10**6
    assert two.ddp.parameters.size == two.ddp.gradients.size == 440 * million
    assert kept(two.ddp) // 4 == 440 * million + 1, "numbers: weights, gradients, moments"
    assert kept(two.fsdp) // 4 == 220 * million + 1, "the count of steps is on each rank"
    assert two.fsdp.parameters.size == 220 * million
    _, half, *_ = scales(BERT, Sharding(bf16=True))
    assert half.fsdp.parameters.size == 220 * million
    sent = {one.what: one.cell.size for one in half.fsdp.sent}
    assert sent == {"gathered": 220 * million, "reduced": 220 * million}


def kept(load: Load) -> int:
    return sum(one.size or 0 for one in (load.parameters, load.gradients, load.state))


# -- hybrid, accumulation, formulas --------------------------------------------------------------


def test_nodes_share_out_and_average_their_shards() -> None:
    found = {one.ranks: one.fsdp for one in scales(SEVEN, Sharding(hybrid=8))}
    assert found[64].parameters == found[8].parameters == found[1024].parameters
    sent = {one.what: one.cell.size for one in found[64].sent}
    assert sent["gathered"] == 49 * BILLION
    assert sent["all-reduced"] == 2 * 7 * 28 * BILLION // 8 // 8
    assert not found[8].sent[-1].cell.formula, "one node averages nothing over nodes"


def test_accumulated_steps_gather_for_each_pass_and_reduce_once() -> None:
    four = replace(NET, passes=4)
    once, often = (
        {one.what: one.cell.size for one in scales(four, chosen, (5,))[0].fsdp.sent}
        for chosen in (STACK, replace(STACK, accumulates=True))
    )
    assert often["gathered"] == 4 * (once["gathered"] or 0)
    assert often["reduced"] == once["reduced"]


def test_without_a_measurement_they_are_formulas() -> None:
    eight = next(one for one in scales(None, replace(STACK, hybrid=4)) if one.ranks == 8)
    assert eight.ddp.parameters.formula == "P"
    assert eight.fsdp.parameters.formula == "P/4"
    assert [one.cell.formula for one in eight.fsdp.sent] == ["1.5 P", "0.75 T", "0.25 T"]
    assert [one.cell.size for one in eight.fsdp.sent] == [None, None, None]
    half = next(one for one in scales(None, replace(STACK, bf16=True)) if one.ranks == 8)
    assert [one.cell.formula for one in half.fsdp.sent] == ["0.875 P", "0.875 T"]
    often = next(one for one in scales(None, replace(STACK, accumulates=True)) if one.ranks == 8)
    assert [one.cell.formula for one in often.fsdp.sent] == ["1.75 k P", "0.875 T"]
    assert often.fsdp.whole.formula == "R+3U + T+U"


@pytest.mark.parametrize("sharding", [STACK, replace(STACK, offload=True), None])
def test_the_largest_batch_that_fits(sharding: Sharding | None) -> None:
    """On shards, too: one sample more, and it is more than before."""
    row = Row("measured", 2, 8, (8,), 4, (), 8)
    found = memory.fit(row, False, NET, sharding)
    assert found is not None
    after = [
        memory.total(memory.memory(replace(row, after=found.per_rank + more), False, NET, sharding))
        for more in (0, 1)
    ]
    assert after[0] is not None
    assert after[1] is not None
    assert after[0][2] <= found.peak < after[1][2]
