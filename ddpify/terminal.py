"""What the terminal can show: the one place that asks the environment."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from typing import TextIO

WIDTH = 100  # where nobody says how wide lines may be, and the longest that reads well
_NARROWEST = 40
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)?")


def is_live(stream: TextIO) -> bool:
    """Whether a line on it can be written over: a terminal that is not a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def shows_color(stream: TextIO) -> bool:
    """Whether to colour what goes there: NO_COLOR says no, else FORCE_COLOR yes."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_live(stream)


def width() -> int:
    """How long lines of text may be on standard output."""
    if not sys.stdout.isatty():
        return WIDTH
    # loads what compresses archives: a tenth of the start of every command
    import shutil

    return max(_NARROWEST, min(WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns))


def block(text: str) -> str:
    """Lines without escapes and control characters, as a browser or a terminal may have them."""
    plain = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4))
    kept = (c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cs") else "�" for c in plain)
    return "".join(kept)
