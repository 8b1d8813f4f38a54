"""What both runs logged for TensorBoard, read by the tensorboard of the project's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from ddpify.verify.evidence import Scalars

_SCRIPT: Final = Path(__file__).parent / "observer" / "read_events.py"
_SECONDS: Final = 600.0
_MARK: Final = "tfevents"  # in the name of every event file

Found: TypeAlias = "Mapping[str, Mapping[str, Any]]"  # by folder: "scalars" and "others"


def is_event_file(path: str) -> bool:
    return _MARK in PurePosixPath(path).name


def compare_scalars(
    python: str, roots: tuple[Path, Path], left: tuple[Sequence[str], Sequence[str]]
) -> tuple[tuple[Scalars, ...], tuple[str, ...]]:
    """Folders in which both runs ``left`` event files, and what of such files is not compared."""
    paths = [[path for path in each if is_event_file(path)] for each in left]
    folders = sorted(set.intersection(*({_folder(path) for path in each} for each in paths)))
    if not folders:
        return (), ()
    try:
        one, many = (
            read_events(python, root, [path for path in each if _folder(path) in folders])
            for root, each in zip(roots, paths, strict=True)
        )
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1:]
        return (), (f"TensorBoard's event files ({': '.join(['cannot be read', *said])})",)
    if one is None or many is None:
        return (), (f"TensorBoard's event files ({python} has no tensorboard)",)
    found = tuple(
        Scalars(folder, one[folder]["scalars"], many[folder]["scalars"]) for folder in folders
    )
    return found, tuple(_others(one[folder]["others"] for folder in folders))


def read_events(python: str, root: Path, paths: Sequence[str]) -> Found | None:
    """By folder, relative to ``root``; None without a tensorboard. Raises SubprocessError."""
    done = subprocess.run(
        (python, os.fspath(_SCRIPT)),
        cwd=root,
        input=json.dumps(list(paths)),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    found: Found | None = json.loads(done.stdout.splitlines()[-1])
    return found


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _others(found: Iterator[Mapping[str, int]]) -> Iterator[str]:
    """Histograms, images, texts: their kinds and how many of each."""
    counts: Counter[str] = Counter()
    for each in found:
        counts.update(each)
    for kind, count in sorted(counts.items()):
        yield f"{count} of TensorBoard's {kind}"
