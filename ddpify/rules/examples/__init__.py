"""Whole small training projects, of which each rule makes its examples by changing a line or two.

In a bad example a comment with the rule's code marks the lines where the rule has to report.
``ddp_utils`` is the copy of the runtime that ``migrate`` adds; whoever writes an example to disk
adds it.
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.rules.base import Example
from ddpify.rules.examples.correct import BY_HAND, PROJECT, SCRIPT, TRAINER
from ddpify.rules.examples.single import LEARNER, LEGACY, SINGLE

__all__ = [
    "BY_HAND",
    "CORRECT",
    "LEARNER",
    "LEGACY",
    "PROJECT",
    "SCRIPT",
    "SINGLE",
    "TRAINER",
    "changed",
    "marked",
]

CORRECT = (SCRIPT, PROJECT, TRAINER, BY_HAND)


def changed(base: Example, *changes: tuple[str, str]) -> Example:
    """``base`` with each first text, which stands in it once, replaced by the second.

    Raises:
        ValueError: a text is not there, or more than once.
    """
    files = dict(base.files)
    for old, new in changes:
        holders = [path for path, text in files.items() if old in text]
        if len(holders) != 1 or files[holders[0]].count(old) != 1:
            raise ValueError(f"an example is to be changed where it says {old!r}, once")
        files[holders[0]] = files[holders[0]].replace(old, new)
    return replace(base, files=tuple(files.items()))


def marked(base: Example, code: str, *ends: str) -> Example:
    """``base`` with a comment behind each text, which ends a line: there ``code`` reports."""
    return changed(base, *((f"{end}\n", f"{end}  # {code}\n") for end in ends))
