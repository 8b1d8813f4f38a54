"""What is recommended, by the memory of a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddpify.advice.choice import recommended, size
from ddpify.advice.memory import memory, total
from ddpify.advice.model import Advice, Measured, Recommendation, Row, Sharding
from ddpify.advice.scaling import scales
from ddpify.settings import Settings, StrategyName
from tests.advice.programs import TRAIN, advice
from tests.advice.test_shards import NET, STACK

LEAN = replace(NET, inputs=0, saved=160, outputs=0, shared=0, loss=0)  # of 8 samples
ROW = Row("measured", 2, 16, (16,), 8, (), 16)


def plan(measured: Measured | None = LEAN, sharding: Sharding = STACK) -> Advice:
    rows = tuple(replace(ROW, ranks=n, after=16 // n) for n in (2, 4, 8))
    return Advice(
        "train.py",
        "single",
        rows=rows,
        memory_of=ROW,
        measured=measured,
        sharding=sharding,
        scales=scales(measured, sharding),
    )


def need(ranks: int, sharding: Sharding | None = None, batch: int = 16) -> int:
    row = replace(ROW, ranks=ranks, after=batch // ranks)
    found = total(memory(row, False, LEAN, sharding))
    assert found is not None
    return found[2]


def decide(
    capacity: int, nproc: int = 0, refused: dict[StrategyName, str] | None = None, **of: Sharding
) -> tuple[str, Recommendation]:
    plans: dict[StrategyName, tuple[Advice, ...]] = {
        name: (plan(**of),) for name in ("ddp", "fsdp") if name not in (refused or {})
    }
    shown, (one,) = recommended(plans, refused or {}, capacity, nproc)
    assert one.recommendation is not None
    return shown, one.recommendation


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ddp_where_it_fits_to_the_byte(ranks: int) -> None:
    shown, found = decide(need(ranks), nproc=ranks)
    assert (shown, found.strategy, found.ranks) == ("ddp", "ddp", None)
    assert f"on each of {ranks} GPUs it is at most" in found.reasons[0]
    assert "times as much" in found.reasons[1], "what fsdp would send"
    _, found = decide(need(ranks) - 1, nproc=ranks)
    assert found.strategy != "ddp"


def test_ddp_on_more_gpus_before_fsdp_on_fewer() -> None:
    """Each has a smaller share of the batch: the numbers that are planned for are tried."""
    assert need(8) < need(2)
    _, found = decide(need(8))
    assert found.strategy == "ddp"
    assert "on each of 8 GPUs" in found.reasons[0]


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_else_fsdp_over_the_fewest_that_fit(ranks: int) -> None:
    shown, found = decide(need(ranks, STACK))
    assert (shown, found.strategy, found.ranks) == ("fsdp", "fsdp", ranks)
    assert "ddp may not fit" in found.reasons[0]
    assert f"sharded over {ranks} GPUs, the fewest that do" in found.reasons[1]


def test_only_numbers_that_share_out_the_batch() -> None:
    """16 samples are not for 3 GPUs, whatever fits."""
    _, found = decide(need(3, STACK, batch=48))
    assert found.ranks == 4


def test_neither_fits_for_certain() -> None:
    shown, found = decide(100)
    assert (shown, found.strategy) == ("ddp", "")
    assert "neither fits for certain on 8 GPUs" in found.reasons[0]
    assert "over 16 GPUs it is" in found.reasons[1], "16 samples are for 16 GPUs at most"


def test_more_gpus_than_are_there_are_named() -> None:
    shown, found = decide(need(8, STACK), nproc=2)
    assert (shown, found.strategy) == ("ddp", "")
    assert any("fsdp fits over" in reason for reason in found.reasons)


def test_a_refusal_leaves_it_open() -> None:
    why = "train.py:7: DDP907 weights are looked at"
    shown, found = decide(need(2, STACK), refused={"fsdp": why})
    assert (shown, found.strategy) == ("ddp", "")
    assert f"fsdp is refused here: {why}" in found.reasons
    shown, found = decide(need(2), refused={"fsdp": why})
    assert found.strategy == "ddp"
    assert not any(why in reason for reason in found.reasons), "nothing depends on it"
    shown, found = decide(need(2), refused={"ddp": why})
    assert (shown, found.strategy) == ("fsdp", "")


def test_without_a_gpu_it_says_what_each_would_need() -> None:
    shown, found = decide(0)
    assert (shown, found.strategy) == ("ddp", "")
    assert "--gpu-memory" in found.reasons[0]
    assert f"more than {size(need(2))} (2 GPUs)" in found.reasons[1]
    assert f"{size(need(4, STACK))} on each of 4" in found.reasons[1]


def test_options_of_shards_count() -> None:
    """Offloaded shards are not on the GPU; what is shown is what was compared."""
    offload = replace(STACK, offload=True)
    least = need(2, offload)
    assert least < need(2, STACK)
    _, found = decide(least, sharding=offload)
    assert (found.strategy, found.ranks) == ("fsdp", 2)
    plans = {"ddp": (plan(),), "fsdp": (plan(sharding=offload),)}
    shown, (one,) = recommended(plans, {}, 0, 0)  # type: ignore[arg-type]
    assert (shown, one.sharding) == ("ddp", offload)


# -- of a program, without a run -----------------------------------------------------------------

ADAM = TRAIN.replace("optim.SGD(", "optim.AdamW(").replace(", momentum=args.momentum", "")


@pytest.mark.parametrize(
    ("text", "each", "most"), [(ADAM, 20, "4,295"), (TRAIN, 16, "5,369")], ids=["AdamW", "SGD"]
)
def test_without_a_run_parameters_are_counted(
    tmp_path: Path, text: str, each: int, most: str
) -> None:
    """80 GiB over the bytes of P, G, T and the optimizer's tensors, in float32."""
    found = advice(tmp_path, text, settings=Settings(strategy="fsdp"))
    _, (one,) = recommended({"fsdp": (found,)}, {}, 80 << 30, 0)
    assert one.recommendation is not None
    assert one.recommendation.strategy == ""
    said = " ".join(one.recommendation.reasons)
    assert f"ddp holds {each} bytes for each float32 parameter" in said
    assert f"80.0 GiB hold at most {most} million parameters" in said


def test_an_optimizer_that_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    text = TRAIN.replace("optim.SGD(", "optim.LBFGS(").replace(", momentum=args.momentum", "")
    found = advice(tmp_path, text)
    _, (one,) = recommended({"ddp": (found,)}, {}, 80 << 30, 0)
    assert one.recommendation is not None
    assert len(one.recommendation.reasons) == 1
    assert "--measure" in one.recommendation.reasons[0]
