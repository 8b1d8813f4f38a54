"""Run by torchrun: each rank leaves its process id and never ends."""

from __future__ import annotations

import os
import threading
from pathlib import Path

Path(f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
print("waiting", flush=True)
threading.Event().wait()
