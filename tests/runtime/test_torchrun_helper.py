"""The helper that starts jobs: it must end every process, and retry torch's exit race only."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.support import torchrun as helper
from tests.support import warm
from tests.support.torchrun import ATTEMPTS, EXIT_RACE, Completed, JobTimeout, torchrun

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.mark.parametrize("usual", [True, False], ids=["usual", "warm"])
def test_a_job_at_its_limit_is_killed_with_all_its_ranks(usual: bool, tmp_path: Path) -> None:
    python = sys.executable if usual else warm.python()
    with pytest.raises(JobTimeout, match="still running after 12 s"):
        torchrun(SCRIPTS / "hangs.py", 2, cwd=tmp_path, timeout=12, python=python)
    pids = [int(file.read_text()) for file in tmp_path.glob("pid*")]
    time.sleep(0.5)  # the server hears of its client's end
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists() and not zombie(pid)]


def zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


FAILED = Completed(1, "", f"{EXIT_RACE}\n", (), ())
RUNS = [
    pytest.param([FAILED] * (ATTEMPTS + 1), ATTEMPTS, 1, id="the-race-always"),
    pytest.param([FAILED, FAILED, Completed(0, "", "", (), ())], 3, 0, id="the-race-twice"),
    pytest.param([FAILED, Completed(0, "", "", (), ())], 2, 0, id="the-race-once"),
    pytest.param([Completed(1, "", "ValueError", (), ())], 1, 1, id="another-failure"),
    pytest.param([Completed(0, "", EXIT_RACE, (), ())], 1, 0, id="the-text-in-a-good-run"),
]


@pytest.mark.parametrize(("outcomes", "started", "returncode"), RUNS)
def test_the_exit_race_alone_is_repeated(
    outcomes: list[Completed],
    started: int,
    returncode: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = list(outcomes)
    monkeypatch.setattr(helper, "_run_once", lambda *arguments: left.pop(0))
    assert torchrun("main.py", 2, cwd=os.curdir).returncode == returncode
    assert len(outcomes) - len(left) == started
