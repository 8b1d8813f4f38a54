"""The README's first command works: `make demo`, without its set-up of an environment."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.training


def test_the_demo_migrates_trains_and_compares(tmp_path: Path) -> None:
    demo = [sys.executable, str(ROOT / "fixtures" / "demo.py")]
    done = subprocess.run(demo, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    assert "+++ b/main_classification.py\n" in shown
    assert "$ torchrun --standalone --nproc_per_node=2 main_classification.py" in shown
    files = [set(line.split()[4:]) for line in shown.splitlines() if line.startswith("files of")]
    assert len(files) == 2
    assert files[0] == files[1] == {"best.pt,", "config.json,", "last.pt,", "log.csv"}
    difference = re.search(r"^  ([0-9.e+-]+) \(float32\)$", shown, re.MULTILINE)
    assert difference, shown
    assert 0.0 <= float(difference[1]) < 1e-5
