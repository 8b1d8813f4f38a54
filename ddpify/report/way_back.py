"""Plain lines about what a migration wrote besides the changes, and how it is taken back."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from ddpify.belongings import Belongings
from ddpify.outcome import Outcome
from ddpify.report.concise import plural
from ddpify.report.text import commands
from ddpify.roots import shown

_FEW = 5  # names in one line


def undo(root: Path, kept: Path | None) -> str:
    """How to take it back from here; ``kept``: where the files before are, if nowhere else."""
    root, here = Path(os.path.realpath(root)), Path.cwd()
    there = "" if here.is_relative_to(root) else f" {shlex.quote(shown(root))}"
    before = f"The files as they were before are in {shown(kept / 'before')}.\n" if kept else ""
    return f"{before}Take it back: ddpify undo{there}\n"


def starts(outcome: Outcome, out: Path) -> tuple[str, ...]:
    """The commands that start the copy: in the folder of it that is this one of the original."""
    root, here = outcome.root.resolve(), Path.cwd()
    inner = here.relative_to(root) if here.is_relative_to(root) else Path()
    folder = out / inner if (out / inner).is_dir() else out
    way = os.path.relpath(out, folder)
    return commands(outcome, "" if way == "." else f"{way}/", str(folder))


def copied(other: Belongings, count: int) -> str:
    """What the copy has besides the changes, and what it has not."""
    lines = []
    if count:
        lines.append(f"Copied {plural(count, 'file')} more, unchanged.")
    if other.data:
        said = "Linked to, as data are large (what is written there is written in the original)"
        lines.append(f"{said}: {_named(other.data)}.")
    if other.outputs:
        said = "Left out, as runs write them and they are large (copy what the program reads)"
        lines.append(f"{said}: {_named(other.outputs)}.")
    if other.left:
        lines.append(f"Left out: {_named(other.left)}.")
    return "".join(f"{line}\n" for line in lines)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more
