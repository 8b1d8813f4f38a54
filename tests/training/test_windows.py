"""One all-reduce for each optimizer step where gradients are accumulated, counted by DDP's hook.

``tests/training/one_line/windows.txt`` shows that the same is trained.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.support.torchrun import torchrun
from tests.training.one_line.reader import variants

pytestmark = pytest.mark.training
WRAP = "    model = wrap_model(model)\n"
COUNTED = """    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    reduced, stepped = [], []
    def count(group, bucket):
        reduced.append(bucket.index())
        return default_hooks.allreduce_hook(group, bucket)
    model.register_comm_hook(None, count)
    from torch.optim.optimizer import register_optimizer_step_post_hook
    register_optimizer_step_post_hook(lambda *a: stepped.append(1))
"""


def test_each_step_is_one_all_reduce(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(variants()["w_last_too"])
    outcome = migrate([script], Settings())
    for change in outcome.changes:
        (tmp_path / change.path).write_bytes(change.after)
    text = script.read_text()
    assert WRAP in text
    said = "    print('counted', len(reduced), len(stepped))\n"
    script.write_text(
        text.replace(WRAP, WRAP + COUNTED).replace("    save_on_main", said + "    save_on_main")
    )
    done = torchrun(script, 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    counts = [
        line.split()[1:] for line in done.rank_stdout[0].splitlines() if line.startswith("counted")
    ]
    assert counts == [["6", "6"]]  # 6 micro-batches, windows of 4: 2 steps in each of 3 epochs
