"""What flags tell DistributedDataParallel is written into the program, and trains the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings
from tests.training.alike import train_alike
from tests.training.one_line.reader import variants

pytestmark = [pytest.mark.training, pytest.mark.spread]


def test_what_the_wrapper_is_told(tmp_path: Path) -> None:
    program = variants()["w_last_too"].replace("m.pth", "net.pt").replace("%.6f", "%.9f")
    told = Settings(find_unused="on", static_graph=False, bucket_cap=1, sync_bn="on")
    text = train_alike(program, tmp_path, told)
    assert "wrap_model(model, find_unused_parameters=True, bucket_cap_mb=1)\n" in text


def test_a_static_graph_is_averaged_in_each_backward(tmp_path: Path) -> None:
    program = variants()["w_counter"].replace("m.pth", "net.pt").replace("%.6f", "%.9f")
    text = train_alike(program, tmp_path, Settings(static_graph=True))
    assert "wrap_model(model, static_graph=True)\n" in text
    assert "gradient_sync" not in text
