"""What is derived of a sharded model, against what ranks that train it really hold and send."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ddpify.advice import shards
from ddpify.advice.advise import advise
from ddpify.advice.model import Measured, Sharding
from ddpify.advice.scaling import scales
from ddpify.pipeline import examine
from ddpify.settings import Settings
from ddpify.verify.measure import measure
from ddpify.verify.options import Options
from tests.projects import put_fixture, write
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(600)]

# Each rank writes what it holds and has sent when the optimizer has stepped twice, and ends there.
COUNTS = '''
import json, os
from collections import Counter
import torch
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives
from torch.distributed.fsdp import FSDPModule
from torch.optim.optimizer import register_optimizer_step_post_hook

seen, steps = Counter(), []

def counted(kind, what, side):
    call = kind.__call__
    def wrapper(self, output_tensor, input_tensor, *args, **kwargs):
        given = (output_tensor, input_tensor)[side]
        seen[what] += given.numel() * given.element_size()
        return call(self, output_tensor, input_tensor, *args, **kwargs)
    kind.__call__ = wrapper

counted(collectives.DefaultAllGather, "gathered", 0)
counted(collectives.DefaultReduceScatter, "reduced", 1)

def size(tensor):
    own = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own.numel() * own.element_size()

def memory(tensor):
    return tensor.to_local().untyped_storage().nbytes()

def whole_gradients():
    """Those that have not been reduced."""
    import gc
    for module in (m for m in gc.get_objects() if isinstance(m, FSDPModule)):
        for group in module._get_fsdp_state()._fsdp_param_groups:
            for one in group.fsdp_params:
                grad = one.unsharded_accumulated_grad
                if grad is None and hasattr(one, "_unsharded_param"):
                    grad = one._unsharded_param.grad
                if grad is not None:
                    yield grad.numel() * grad.element_size()

backward = torch.Tensor.backward
def watched(*args, **kwargs):
    backward(*args, **kwargs)
    seen["accumulated"] = max(seen["accumulated"], sum(whole_gradients()))
torch.Tensor.backward = watched

def step(optimizer, *_):
    steps.append(optimizer)
    if len(steps) == 1:
        seen.clear()
        return
    held = [p for group in optimizer.param_groups for p in group["params"]]
    states = [t for p in held for t in optimizer.state[p].values() if t.dim() > 0]
    kept = {
        "parameters": sum(map(size, held)),
        "gradients": sum(size(p.grad) for p in held),
        "state": sum(map(size, states)),
        "memory": sum(map(memory, held)),
        **seen,
    }
    with open(f"kept.{os.environ['RANK']}.json", "w") as file:
        json.dump(kept, file)
    raise SystemExit(0)

register_optimizer_step_post_hook(step)
'''


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    entry = put_fixture("text_classification", tmp_path_factory.mktemp("measured") / "text")
    return measure(Options(script=entry, timeout=120))


@pytest.mark.parametrize(("ranks", "bf16"), [(2, False), (3, False), (2, True)])
def test_each_rank_holds_and_sends_what_is_derived(
    measured: Measured, ranks: int, bf16: bool, tmp_path: Path
) -> None:
    """On three ranks no dimension divides: there are shards without a row, and padding."""
    entry = put_fixture("text_classification", tmp_path / "text")
    settings = Settings(strategy="fsdp", fsdp_bf16=bf16)
    outcome, (facts,) = examine([entry], settings)
    sharding = advise(outcome, facts, settings).sharding
    assert sharding == Sharding(
        (("TinyTransformer", "encoder.layers"),), bf16=bf16, accumulates=True
    )
    write(outcome.changes, outcome.root)
    entry.write_text(COUNTS + entry.read_text())
    env = {"EPOCHS": "1", "BATCH_SIZE": str(12 * ranks)}
    done = torchrun(entry, ranks, cwd=entry.parent, env=env, timeout=240)
    assert done.returncode == 0, done.stderr
    files = sorted(entry.parent.glob("kept.*.json"))
    kept = [json.loads(file.read_text()) for file in files]
    assert len(kept) == ranks

    held = shards.held(measured, sharding, ranks)
    assert {one["memory"] for one in kept} == {held.parameters}, "padded to the largest"
    assert max(one["parameters"] for one in kept) == held.parameters
    assert max(one["gradients"] for one in kept) == held.gradients
    scalars = sum(weight.scalars for weight in measured.weights)
    assert max(one["state"] for one in kept) == held.state - scalars
    sums = Counter[str]()
    for one in kept:
        sums.update(one)
    assert sums["parameters"] == measured.parameters, "together they have it once"
    assert {one["accumulated"] for one in kept} == {measured.trainable}, "whole on each rank"

    load = scales(measured, sharding, (ranks,))[0].fsdp
    sent = {one.what: one.cell.size for one in load.sent}
    for one in kept:
        assert sent["gathered"] == one["gathered"] * (ranks - 1) // ranks
        assert sent["reduced"] == one["reduced"] * (ranks - 1) // ranks
