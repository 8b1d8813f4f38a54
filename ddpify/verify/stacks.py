"""Where a process that hung stands, from what ``faulthandler`` wrote, for people."""

from __future__ import annotations

import linecache
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FRAME: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_THREAD: Final = re.compile(r"(?:Current t|T)hread 0x\w+(?: \[.*\])? \(most recent call first\):")
# Installed packages, the standard library, and code without a file.
_LIBRARY: Final = re.compile(r"<|.*/(?:site|dist)-packages/|.*/lib/python3\.\d+/")
_OBSERVER: Final = str(Path(__file__).parent) + os.sep


@dataclass(frozen=True)
class StackFrame:
    """``file`` is absolute, ``shown`` relative to the copy or to where packages are installed."""

    file: str
    line: int
    function: str
    shown: str
    users: bool

    @property
    def text(self) -> str:
        source = linecache.getline(self.file, self.line).strip() if self.users else ""
        place = f'  File "{self.shown}", line {self.line}, in {self.function}'
        return f"{place}\n    {source}" if source else place


def readable(dump: str, folder: Path, cwd: Path) -> str:
    """The threads that run the user's code, innermost frame last.

    Of what the user's code called only the innermost frame is kept. If no thread runs any, the
    dump itself.
    """
    threads = [_frames(text, folder, cwd) for text in _THREAD.split(dump)]
    kept = [_trimmed(frames) for frames in threads if any(frame.users for frame in frames)]
    return "\n\n".join(kept) or dump.strip()


def _frames(text: str, folder: Path, cwd: Path) -> list[StackFrame]:
    """Outermost first."""
    found = [_frame(match, folder, cwd) for match in _FRAME.finditer(text)]
    return [frame for frame in reversed(found) if not frame.file.startswith(_OBSERVER)]


def _frame(match: re.Match[str], folder: Path, cwd: Path) -> StackFrame:
    name = match["file"]
    file = name if name.startswith("<") else os.path.normpath(cwd / name)
    inside = Path(file).is_relative_to(folder)
    shown = str(Path(file).relative_to(folder)) if inside else _short(file)
    users = inside or not _LIBRARY.match(file)
    return StackFrame(file, int(match["line"]), match["function"], shown, users)


def _trimmed(frames: list[StackFrame]) -> str:
    last = max(number for number, frame in enumerate(frames) if frame.users)
    kept = [frame.text for frame in frames if frame.users]
    if last < len(frames) - 2:
        kept.append("  …")
    if last < len(frames) - 1:
        kept.append(frames[-1].text)
    return "\n".join(kept)


def _short(file: str) -> str:
    return file if file.startswith("<") else _LIBRARY.sub("", file)
