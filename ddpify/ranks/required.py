"""Which Lightning a program is for, as its files and its own words say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ddpify.ranks.protocol import RankMachine

_FILES: Final = (
    *("requirements*.txt", "requirements/*.txt", "env*.y*ml", "conda*.y*ml"),
    *("setup.py", "setup.cfg", "pyproject.toml", "Pipfile"),
)
_ASKED: Final = re.compile(
    r"\b(?:pytorch[-_.])?lightning(?:\[[\w,-]*\])?[ \t\"'=({]*?([=<>~!][=<>~!\d., \t]*)", re.IGNORECASE
)
_BOUND: Final = re.compile(r"(~=|<=|===?|<|=)[ \t]*(\d+)(?:\.(\d+))?")
_BARRIER: Final = (2, 1)  # since this version all ranks meet in `save_checkpoint`
# What there is no more since Lightning 2.
_OLD: Final = re.compile(
    r"def (?:training|validation|test)_epoch_end\(|\bfrom_argparse_args\("
    r"|\bprogress_bar_refresh_rate=|\bcheckpoint_callback=|pytorch_lightning\.metrics\b"
)


def is_older(m: RankMachine) -> bool:
    """Whether a program is for a Lightning in whose ``save_checkpoint`` ranks do not meet."""
    if any(_OLD.search(module.source.text) for module in m.run.modules.values()):
        return True
    folder = (m.modules.root / m.run.start).parent
    return any(_is_bounded(m, file) for file in _said_in(folder, m.modules.root))


def _said_in(folder: Path, root: Path) -> Iterator[Path]:
    """The files that say what a program needs: beside it, or in a folder above."""
    within = [one for one in (folder, *folder.parents) if one == root or root in one.parents]
    for place in within:
        for pattern in _FILES:
            yield from sorted(place.glob(pattern))


def _is_bounded(m: RankMachine, file: Path) -> bool:
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return False
    m.modules.words.setdefault(file, "")  # it was looked into
    return any(_excludes(asked) for asked in _ASKED.findall(text))


def _excludes(asked: str) -> bool:
    """Whether a bound such as ``==1.4.2`` or ``>=1.9,<2`` leaves out the newer ones."""
    for sign, major, minor in _BOUND.findall(re.sub(r">=?[ \t]*[\d.]+", "", asked)):
        bound = (int(major), int(minor or 0))
        if bound < _BARRIER or (sign == "<" and bound == _BARRIER):
            return sign != "~=" or bound[0] < _BARRIER[0]
    return False
