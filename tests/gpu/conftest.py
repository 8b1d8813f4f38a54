"""What needs a GPU is skipped, with one sentence, where there is none."""

from __future__ import annotations

import pytest
import torch

NONE = f"no GPU here: torch {torch.__version__} finds no CUDA device; what needs one is skipped"


def pytest_report_header() -> list[str]:
    """What the numbers below were measured with."""
    if not torch.cuda.is_available():
        return [NONE]
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return [
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {nccl}",
        f"{torch.cuda.device_count()} GPU(s): {torch.cuda.get_device_properties(0)}",
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=NONE))
