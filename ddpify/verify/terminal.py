"""A terminal to start programs on: many ask theirs for its size, and fail without one."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ROWS, COLUMNS = 24, 80
END_OF_INPUT: Final = b"\x04" * 64  # one for each read, by whichever rank


@contextmanager
def silent_terminal() -> Iterator[int]:
    """The descriptor of one nobody types on: what is read from it is at its end."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.write(ours, END_OF_INPUT)
        yield theirs
    finally:
        for end in (theirs, ours):
            os.close(end)
