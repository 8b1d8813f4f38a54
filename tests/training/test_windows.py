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


# All-reduces, each with a step after it, in 3 epochs. Of 6 micro-batches: windows of 4 and a rest,
# or pairs taken by `next`; one pair, of which the first goes on; of 5, pairs across epochs.
STEPS = {"w_last_too": 6, "w_leftover_step": 6, "w_next": 9, "w_not_yet": 3, "w_method": 7}
NAMES = [
    pytest.param(
        name, marks=() if name in ("w_leftover_step", "w_method") else pytest.mark.thorough
    )
    for name in STEPS
]


@pytest.mark.parametrize("name", NAMES)
def test_each_step_is_one_all_reduce(name: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(variants()[name])
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
    assert counts == [[str(STEPS[name])] * 2]
