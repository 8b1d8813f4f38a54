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
    "w_flag_late": "(i + 1) % 2 == 0 or i + 1 == len(loader)",
    "w_counter": "(count + 1) % 2 == 0",
    "w_counter_reset": "count + 1 == 2",
    "w_not_yet": "(i + 1) % 2 == 0",
    "w_leftover_step": "(i + 1) % 4 == 0 or i == len(loader) - 1",
    "w_leftover_if": "i % 4 == 3 or i == len(loader) - 1",
    "w_epoch": "i == len(loader) - 1",
    "w_meter": "(i + 1) % 2 == 0",
}
# Gradients that are looked at.
EACH = ("w_clip_each", "w_clip_by_name", "w_clip_in_function", "w_norm_after")


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
    assert ".backward()" in held
    assert "gradient_sync" not in rest  # one block


@pytest.mark.parametrize("name", EACH)
def test_each_is_reduced_where_that_is_not_certain(name: str, tmp_path: Path) -> None:
    assert "gradient_sync" not in _migrated(name, tmp_path)


def test_a_function_that_goes_both_ways_is_held_by_the_name_of_its_model(tmp_path: Path) -> None:
    held = "with gradient_sync(self.net, sync=(self.seen + 1) % self.every == 0):\n"
    assert f"            {held}                total += self.fit(x, y)\n" in _migrated(
        "w_method", tmp_path
    )


def test_a_function_is_given_its_model(tmp_path: Path) -> None:
    held = "with gradient_sync(model, sync=(i + 1) % 2 == 0):\n"
    assert f"{held}                loss = learn(model, criterion, x, y)\n" in _migrated(
        "w_function", tmp_path
    )


def test_the_last_round_of_an_inner_loop_is_reduced(tmp_path: Path) -> None:
    assert "                with gradient_sync(model, sync=k == 1):\n" in _migrated(
        "w_next", tmp_path
    )


def test_each_model_that_is_called_waits(tmp_path: Path) -> None:
    text = _migrated("w_two_models", tmp_path)
    assert text.count("gradient_sync(front, ") == text.count("gradient_sync(") - 1 == 1
