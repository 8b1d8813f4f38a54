"""The README's first command works: `make demo`, without its set-up of an environment."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.training


def test_the_demo_migrates_and_verifies(tmp_path: Path) -> None:
    demo = [sys.executable, str(ROOT / "fixtures" / "demo.py")]
    done = subprocess.run(demo, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    assert "+++ b/main_classification.py\n" in shown
    assert "$ ddpify verify main_classification.py" in shown
    assert "torchrun --standalone --nproc_per_node=2 main_classification.py" in shown
    assert re.search(r"2 processes train the same model", shown), shown
