"""Which line of the user's is being run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType

import torch


class Places:
    """Names the nearest frame in the watched folder, or else the nearest that is not torch's."""

    def __init__(self, watch: Path) -> None:
        self._watch = watch.resolve()
        ours = Path(__file__).parent
        self._skipped = (str(Path(torch.__file__).parent), str(ours), f"{ours.parent}/observe.py")
        self._known: dict[CodeType, tuple[str, bool]] = {}

    def site(self) -> str:
        """As file:line, relative to the watched folder; "" if only torch is running."""
        frame: FrameType | None = sys._getframe(1)
        outside = ""
        while frame is not None:
            code = frame.f_code
            if code not in self._known:
                self._known[code] = self._place(code.co_filename)
            name, own = self._known[code]
            if own:
                return f"{name}:{frame.f_lineno}"
            if name and not outside:
                outside = f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return outside

    def _place(self, filename: str) -> tuple[str, bool]:
        """The name to show ("" for torch and the observer), and whether it is the user's."""
        if filename.startswith((*self._skipped, "<frozen")):
            return "", False
        path = Path(filename).resolve()
        own = path.is_relative_to(self._watch) and "site-packages" not in path.parts
        return (path.relative_to(self._watch).as_posix() if own else path.name), own
