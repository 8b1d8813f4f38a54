"""The table of optimizer states against what torch makes, and what is read of the source."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ddpify.advice.optimizers import KNOWN
from tests.advice.programs import TRAIN, advice, changed

PLAIN = [pytest.param(name, {}, id=name) for name in KNOWN]
SWITCHED = [
    pytest.param("SGD", {"momentum": 0.9}, id="SGD-momentum"),
    pytest.param("Adam", {"amsgrad": True}, id="Adam-amsgrad"),
    pytest.param("AdamW", {"amsgrad": True}, id="AdamW-amsgrad"),
    pytest.param("RMSprop", {"momentum": 0.9, "centered": True}, id="RMSprop-both"),
]


@pytest.mark.parametrize(("name", "options"), [*PLAIN, *SWITCHED])
def test_the_table_is_what_torch_makes(
    name: str, options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch sets it at a first step
    layer = nn.Linear(30, 7)
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1, **options)
    layer(torch.ones(2, 30)).sum().backward()
    optimizer.step()
    made = sum(
        value.untyped_storage().nbytes()
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    )
    slots, scalars, extras = KNOWN[name]
    slots += sum(bool(options.get(extra)) for extra, _ in extras)
    parameters = sum(p.numel() * 4 for p in layer.parameters())
    assert made == slots * parameters + scalars * 2


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [
        ("SGD(model.parameters(), lr=0.1)", 0),
        ("SGD(model.parameters(), lr=0.1, momentum=args.momentum)", 1),
        ("SGD(model.parameters(), 0.1, 0.9)", 1),
        ("SGD(model.parameters(), 0.1, 0.0)", 0),
        ("SGD(model.parameters(), lr=0.1, momentum=args.momentum * 2)", None),
        ("AdamW(model.parameters())", 2),
        ("Adam(model.parameters(), amsgrad=True)", 3),
        ("RMSprop(model.parameters(), centered=True, momentum=0.5)", 3),
        ("Adafactor(model.parameters())", None),
    ],
)
def test_the_state_follows_from_the_arguments(
    tmp_path: Path, optimizer: str, slots: int | None
) -> None:
    text = changed(TRAIN, ("SGD(model.parameters(), lr=0.1, momentum=args.momentum)", optimizer))
    (state,) = advice(tmp_path, text).states
    assert state.slots == slots
    assert state.kind == optimizer.partition("(")[0]
    assert str(state.site).startswith("train.py:")


def test_a_default_on_the_command_line_decides(tmp_path: Path) -> None:
    (state,) = advice(tmp_path, changed(TRAIN, ("default=0.9", "default=0"))).states
    assert state.slots == 0
