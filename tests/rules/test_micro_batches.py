"""Where gradients are accumulated, only the micro-batch before a step is all-reduced.

The programs are those of ``tests/training/one_line/windows.txt``, which are trained there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.training.one_line.reader import variants

ALONE = {
    "w_plus_one": "(i + 1) % 2 == 0",
    "w_k_minus_one": "i % 3 == 3 - 1",
    "w_last_too": "(i + 1) % 4 == 0 or i == len(loader) - 1",
    "w_last_dropped": "(i + 1) % 4 == 0",
    "w_option": "(i + 1) % args.accum == 0",
    "w_scheduler": "(i + 1) % 2 == 0",
    "w_flag": "last",
}
# A counter that goes on before it is asked, gradients that are looked at, steps elsewhere.
EACH = (
    *("w_counter", "w_counter_reset", "w_clip_each", "w_clip_by_name", "w_clip_in_function"),
    *("w_leftover_step", "w_function", "w_norm_after"),
)


def _migrated(name: str, folder: Path) -> str:
    (folder / "train.py").write_text(variants()[name])
    outcome = migrate([folder / "train.py"], Settings())
    assert not outcome.refusals
    (text,) = (c.after.decode() for c in outcome.changes if c.path == "train.py")
    return text


@pytest.mark.parametrize("name", ALONE)
def test_forward_and_backward_are_under_the_condition_of_the_step(
    name: str, tmp_path: Path
) -> None:
    text = _migrated(name, tmp_path)
    _, _, rest = text.partition(f"            with gradient_sync(model, sync={ALONE[name]}):\n")
    held = rest.partition("            if ")[0]
    assert "= model(x)" in held
    assert "loss.backward()" in held
    assert "gradient_sync" not in rest  # one block


@pytest.mark.parametrize("name", EACH)
def test_each_is_reduced_where_that_is_not_certain(name: str, tmp_path: Path) -> None:
    assert "gradient_sync" not in _migrated(name, tmp_path)


def test_each_model_that_is_called_waits(tmp_path: Path) -> None:
    text = _migrated("w_two_models", tmp_path)
    assert text.count("gradient_sync(front, ") == text.count("gradient_sync(") - 1 == 1
