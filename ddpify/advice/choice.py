"""DDP or FSDP: what fits the memory of a GPU, by sums that are upper bounds.

DDP where it fits, because it sends less; else FSDP over the fewest ranks on which that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ddpify.advice.memory import memory, total
from ddpify.advice.model import Advice, Measured, Recommendation, Row
from ddpify.advice.shards import degree
from ddpify.settings import StrategyName

GIBIBYTE = 1 << 30
MOST = 1024  # ranks that are tried
_FLOAT32 = 4
_BOUND = (
    "sums are upper bounds: a run may need less; what they leave out (CUDA context, NCCL,"
    " fragmentation) needs room besides"
)


def recommended(
    plans: Mapping[StrategyName, Sequence[Advice]],
    refused: Mapping[StrategyName, str],
    capacity: int,
    nproc: int,
) -> tuple[StrategyName, tuple[Advice, ...]]:
    """The strategy whose plan is shown, and that plan with what is recommended for each entry.

    ``plans`` are those that there are, by strategy; ``refused``: why there is no other.
    ``capacity`` are the bytes of a GPU, 0 where nobody says; ``nproc`` GPUs are wanted, 0: any.
    """
    asked = plans["fsdp"] if "fsdp" in plans else plans["ddp"]  # it has the options of shards
    found = {one.entry: (one, _allowed(_recommend(one, capacity, nproc), refused)) for one in asked}
    sharded = any(one.strategy == "fsdp" for _, one in found.values())
    shown: StrategyName = "fsdp" if sharded or "ddp" not in plans else "ddp"
    return shown, tuple(_with(one, *found[one.entry]) for one in plans[shown] if one.entry in found)


def _with(advice: Advice, asked: Advice, found: Recommendation) -> Advice:
    """What is recommended, and the numbers that it was made from."""
    return replace(
        advice,
        recommendation=found,
        sharding=asked.sharding,
        scales=asked.scales,
        units=asked.units,
    )


def _recommend(advice: Advice, capacity: int, nproc: int) -> Recommendation:
    measured, row = advice.measured, advice.memory_of
    if measured is None or row is None or not row.batch:
        return Recommendation("", tuple(_unmeasured(advice, capacity)))
    sums = _ByRanks(advice, measured, row, capacity, nproc)
    if not capacity:
        return Recommendation("", tuple(sums.needs()))
    found = sums.choose()
    if capacity == measured.capacity:
        said = f"the memory is that of {measured.device}, where it was measured"
        found = replace(found, reasons=(*found.reasons, said))
    return found


def _allowed(found: Recommendation, refused: Mapping[StrategyName, str]) -> Recommendation:
    said = tuple(f"{name} is refused here: {why}" for name, why in sorted(refused.items()))
    if found.strategy in refused:
        return Recommendation("", (*found.reasons, *said))
    if not found.strategy and refused:
        return replace(found, reasons=(*found.reasons, *said))
    return found


def _unmeasured(advice: Advice, capacity: int) -> Iterator[str]:
    """What it depends on; how many parameters a GPU holds, where the optimizers tell."""
    yield (
        "it depends on how much the model holds, which the source does not say: --measure counts"
        " it in a run of the original"
    )
    slots = {state.slots for state in advice.states}
    if None in slots or len(slots) != 1:
        return
    each = _FLOAT32 * (3 + max(one for one in slots if one is not None))
    kinds = " and ".join(sorted({state.kind for state in advice.states}))
    yield (
        f"with {kinds} ddp holds {each} bytes for each float32 parameter that is trained (P, G, S,"
        f" and T for its buckets), fsdp {each - _FLOAT32}/N and what is whole at a time"
    )
    if capacity:
        most = capacity / each
        yield (
            f"so {size(capacity)} hold at most {most / 1e6:,.0f} million parameters under ddp,"
            " without activations: with more of them, fsdp"
        )
    else:
        yield "and on the memory of a GPU: --gpu-memory GIB says it"


@dataclass(frozen=True)
class _ByRanks:
    """The sums of one program, on any number of ranks."""

    advice: Advice
    measured: Measured
    row: Row
    capacity: int
    nproc: int

    @property
    def _batch(self) -> int:
        return self.row.batch or 1

    def choose(self) -> Recommendation:
        planned = self._planned()
        ddp = next((n for n in planned if self._need("ddp", n) <= self.capacity), None)
        if ddp is not None:
            return Recommendation("ddp", tuple(self._for_ddp(ddp)))
        shared = [n for n in range(2, MOST + 1) if self._divides(n)]
        over = next((n for n in shared if self._need("fsdp", n) <= self.capacity), None)
        if over is None or (self.nproc and over > self.nproc):
            return Recommendation("", tuple(self._too_large(shared, over)))
        return Recommendation("fsdp", tuple(self._for_fsdp(over)), over)

    def needs(self) -> Iterator[str]:
        """What each would take, where nobody says what there is."""
        yield "it depends on the memory of a GPU: --gpu-memory GIB says it"
        planned = self._planned()
        fsdp = ", ".join(f"{size(self._need('fsdp', n))} on each of {n}" for n in planned)
        least = size(self._need("ddp", planned[0]))
        yield f"ddp where a GPU has more than {least} ({planned[0]} GPUs), else fsdp: {fsdp}"
        yield _BOUND

    def _planned(self) -> list[int]:
        return [self.nproc] if self.nproc else sorted({row.ranks for row in self.advice.rows})

    def _need(self, strategy: StrategyName, ranks: int) -> int:
        """Bytes of a rank, with its share of the batch."""
        sharding, batch = self.advice.sharding, self._batch
        if self.advice.split == "global":
            batch = -(-batch // ranks)
        given = replace(self.row, ranks=ranks, after=batch)
        found = total(memory(given, False, self.measured, sharding if strategy == "fsdp" else None))
        assert found is not None
        return found[2]

    def _divides(self, ranks: int) -> bool:
        """Whether so many ranks can share out the batch, and shard over all of themselves."""
        hybrid = self.advice.sharding.hybrid
        whole = self.advice.split != "global" or self._batch % ranks == 0
        return whole and (not hybrid or ranks <= hybrid or ranks % hybrid == 0)

    def _for_ddp(self, ranks: int) -> Iterator[str]:
        need = self._need("ddp", ranks)
        yield (
            f"all of it fits: on each of {ranks} GPUs it is at most {size(need)} of"
            f" {size(self.capacity)}, which leaves {size(self.capacity - need)}"
        )
        sent = {one.ranks: (one.ddp, one.fsdp) for one in self.advice.scales}
        both = [sum(one.cell.size or 0 for one in load.sent) for load in sent.get(ranks, ())]
        if both and both[0]:
            yield f"fsdp would send {both[1] / both[0]:.3g} times as much in a step"
        yield _BOUND

    def _for_fsdp(self, over: int) -> Iterator[str]:
        planned = self._planned()[-1]
        yield (
            f"ddp may not fit: on each of {planned} GPUs it is up to"
            f" {size(self._need('ddp', planned))}, of {size(self.capacity)}"
        )
        need = self._need("fsdp", over)
        share = degree(self.advice.sharding, over)
        nodes = f" on {over} GPUs" if share < over else ""
        yield (
            f"sharded over {share} GPUs{nodes}, the fewest that do, it is at most {size(need)},"
            f" which leaves {size(self.capacity - need)}"
        )
        if planned > over:
            yield f"over {planned} GPUs it is at most {size(self._need('fsdp', planned))}"
        yield _BOUND

    def _too_large(self, shared: Sequence[int], over: int | None) -> Iterator[str]:
        planned = self._planned()[-1]
        yield (
            f"neither fits for certain on {planned} GPUs of {size(self.capacity)}: ddp is up to"
            f" {size(self._need('ddp', planned))} on each, fsdp {size(self._need('fsdp', planned))}"
        )
        if over is not None:
            yield f"fsdp fits over {over} GPUs: at most {size(self._need('fsdp', over))} on each"
        elif shared:
            least = size(self._need("fsdp", shared[-1]))
            yield f"nor does fsdp over more: over {shared[-1]} GPUs it is {least} on each"
        yield (
            "--fsdp-bf16 halves what is gathered, --fsdp-offload keeps shards in host memory; what"
            " --fsdp-recompute saves is not in these sums"
        )
        yield _BOUND


def size(count: int) -> str:
    """In GiB, or in MiB where that is nothing."""
    if count >= GIBIBYTE:
        return f"{count / GIBIBYTE:.1f} GiB"
    return f"{count / (1 << 20):.1f} MiB"
