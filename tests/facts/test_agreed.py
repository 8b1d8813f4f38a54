"""Conditions that say of which terms a loss is: one for all ranks, where they ask means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.test_pooled import fixes

HEAD = """def term(value):
    if value.item() > 1:
        return value
    return 0 * value
"""
NOISE = "z = torch.Tensor(np.random.normal(0, 1, (x.shape[0], 4)))\n"
OFF = "loss, off = F.cross_entropy(net(x), y), net(-x).square().mean()\n"
ASKED = [
    pytest.param(
        OFF + "if (2 - off.data).item() > 0:\n    loss += 2 - off",
        ["reduce_mean((2 - off.data).item())"],
        id="a-margin",
    ),
    pytest.param(
        OFF + "if off > 1 and epoch > 2:\n    loss = loss + off\nelse:\n    loss = 2 * loss",
        ["reduce_mean(off)"],
        id="both-ways",
    ),
    pytest.param(
        NOISE + OFF.replace("-x", "z") + "if off.item() < loss.item():\n    loss = off",
        ["reduce_mean(loss.item())", "reduce_mean(off.item())"],
        id="of-noise",
    ),
    pytest.param(
        OFF + "mask = y > 0\nif off > 1:\n    loss = loss + (net(x)[mask] ** 2).sum() / mask.sum()",
        ["per_rank_count(mask.sum())", "reduce_mean(off)"],
        id="over-a-count",
    ),
    pytest.param(OFF + "if off > 1:\n    print(off)", [], id="no-term"),
    pytest.param(OFF + "if x.max() > 1:\n    loss = loss + off", ["note"], id="a-maximum"),
    pytest.param(
        OFF + "if x.max() > 1:\n    if off > 1:\n        loss = loss + off",
        ["note"],
        id="under-a-maximum",
    ),
    pytest.param(
        OFF + "if x.max() > 1:\n    print(x)\nelif off > 1:\n    loss = loss + off",
        ["note"],
        id="else-of-a-maximum",
    ),
    pytest.param(OFF + "loss = loss + term(off)", ["note"], id="in-a-function"),
]


@pytest.mark.parametrize(("body", "wanted"), ASKED)
def test_ranks_have_the_same_terms(body: str, wanted: list[str], tmp_path: Path) -> None:
    head = f"import numpy as np\nepoch = 3\n{HEAD}"
    assert sorted(fixes(body, tmp_path, head=head)) == wanted
