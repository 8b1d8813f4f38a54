"""Of a dump of all threads people see where their own code waits."""

from __future__ import annotations

from pathlib import Path

import ddpify.verify
from ddpify.verify.stacks import readable

DUMP = """\
Thread 0x00007f11 (most recent call first):
  File "/venv/lib/python3.11/site-packages/tqdm/_monitor.py", line 60 in run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f12 (most recent call first):
  File "{torch}/distributed/distributed_c10d.py", line 9 in all_reduce
  File "{observer}/collectives.py", line 5 in wrapper
  File "{torch}/distributed/c10d_logger.py", line 8 in wrapper
  File "../common/mean.py", line 7 in mean
  File "main.py", line 2 in train
  File "{copy}/main.py", line 4 in <module>
  File "<frozen runpy>", line 88 in _run_code
"""


def dump(copy: Path) -> str:
    (copy / "main.py").write_text("def train():\n    mean(1)\n\ntrain()\n")
    observer = Path(ddpify.verify.__file__).parent / "observer"
    return DUMP.format(
        copy=copy, observer=observer, torch="/venv/lib/python3.11/site-packages/torch"
    )


def test_the_users_frames_and_the_innermost_one(tmp_path: Path) -> None:
    assert readable(dump(tmp_path), tmp_path, tmp_path).splitlines() == [
        '  File "main.py", line 4, in <module>',
        "    train()",
        '  File "main.py", line 2, in train',
        "    mean(1)",
        f'  File "{tmp_path.parent}/common/mean.py", line 7, in mean',
        "  …",
        '  File "torch/distributed/distributed_c10d.py", line 9, in all_reduce',
    ]


def test_without_any_users_frame_it_is_the_dump(tmp_path: Path) -> None:
    text = DUMP.partition("\n\n")[0]

    assert readable(text, tmp_path, tmp_path) == text
