"""What one rank did, kept in memory and written when its process ends.

Plain containers and tensors only, so that the file loads without this package.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# Name of the audit event -> the positions of the paths it changes. shutil.copyfile, move and
# copytree raise these or "open" themselves; only rmtree works below the level of paths.
_CHANGES = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "shutil.rmtree": (0,),
    "sqlite3.connect": (0,),
}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND


class Recorder:
    def __init__(self, out: Path, rank: int, watch: Path) -> None:
        self.rank = rank
        self.steps: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []
        self._out = out.resolve()
        self._watch = watch.resolve()
        self._process = os.getpid()
        self._keep = torch.save  # the script's is watched
        self._out.mkdir(parents=True, exist_ok=True)
        self._write_summary("running", None, False)

    def note(self, kind: str, **detail: Any) -> None:
        self.events.append({"kind": kind, **detail})

    def watch_files(self) -> None:
        sys.addaudithook(self._hear)

    def note_file(self, operation: str, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # an open file descriptor
        absolute = Path(os.path.abspath(os.fsdecode(path)))
        inside = absolute.is_relative_to(self._watch) and not absolute.is_relative_to(self._out)
        if inside and "__pycache__" not in absolute.parts:
            relative = absolute.relative_to(self._watch).as_posix()
            existed, steps = os.path.lexists(absolute), len(self.steps)
            self.files.append(
                {"operation": operation, "path": relative, "existed": existed, "steps": steps}
            )

    def finish(self, status: str, exit_code: int | None) -> None:
        """Write what was seen; a worker that was forked from the rank writes nothing."""
        if os.getpid() != self._process:
            return
        group_left_open = dist.is_available() and dist.is_initialized()
        content = {"steps": self.steps, "events": self.events, "files": list(self.files)}
        self._keep(content, self._out / f"rank{self.rank}.pt")
        self._write_summary(status, exit_code, group_left_open)

    def _write_summary(self, status: str, exit_code: int | None, group_left_open: bool) -> None:
        summary = {
            "rank": self.rank,
            "world_size": int(os.environ.get("WORLD_SIZE", "1")),
            "status": status,
            "exit_code": exit_code,
            "group_left_open": group_left_open,
        }
        (self._out / f"rank{self.rank}.json").write_text(json.dumps(summary), encoding="utf-8")

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if (mode and set(mode) & set("wax+")) or (not mode and flags & _WRITE_FLAGS):
                self.note_file("open", path)
        elif event in _CHANGES and os.getpid() == self._process:
            for position in _CHANGES[event]:
                self.note_file(event, arguments[position])
