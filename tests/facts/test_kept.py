"""Objects that keep a rank's numbers and are shown whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from ddpify.rules.examples.single import METER
from tests.projects import put_example, read


@pytest.mark.parametrize(
    ("number", "how"),
    [
        pytest.param("objective.item(), len(label)", "global_meter", id="a mean"),
        pytest.param("objective.median().item() ** 3", "", id="what nobody can put together"),
    ],
)
def test_a_meter_shown_in_the_loop(number: str, how: str, tmp_path: Path) -> None:
    step = "            adam.step()\n"
    line = '            print("{m.avg}".format(m=meter))\n'
    shown = f"{step}            meter.update({number})\n{line}"
    example = changed(
        SINGLE,
        ("def accuracy", f"{METER}def accuracy"),
        ("        net.train()\n", "        net.train()\n        meter = Meter()\n"),
        (step, shown),
    )
    put_example(example, tmp_path)
    parts = {p.text: p.how for _, found in read(tmp_path / "main.py").sinks for p in found}
    assert parts.get("meter") == how
