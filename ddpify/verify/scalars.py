"""What both runs logged for TensorBoard, read by the tensorboard of the project's interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from ddpify.verify.evidence import Scalars
from ddpify.verify.interpreter import Interpreter, InterpreterError

_SCRIPT: Final = Path(__file__).parent / "observer" / "read_events.py"
_MARK: Final = "tfevents"  # in the name of every event file


def is_event_file(path: str) -> bool:
    return _MARK in PurePosixPath(path).name


def compare_scalars(
    interpreter: Interpreter,
    roots: tuple[Path, Path],
    left: tuple[Sequence[str], Sequence[str]],
) -> tuple[tuple[Scalars, ...], tuple[str, ...]]:
    """Folders in which both runs ``left`` event files, and what of such files is not compared."""
    paths = [[path for path in each if is_event_file(path)] for each in left]
    folders = sorted(set.intersection(*({_folder(path) for path in each} for each in paths)))
    if not folders:
        return (), ()
    try:
        one, many = (
            interpreter.ask(_SCRIPT, str(root), [path for path in each if _folder(path) in folders])
            for root, each in zip(roots, paths, strict=True)
        )
    except InterpreterError as error:
        return (), (f"TensorBoard's event files ({error})",)
    if one is None or many is None:
        return (), (f"TensorBoard's event files ({interpreter.python} has no tensorboard)",)
    found = tuple(
        Scalars(folder, one[folder]["scalars"], many[folder]["scalars"]) for folder in folders
    )
    return found, tuple(_others(one[folder]["others"] for folder in folders))


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _others(found: Iterator[Mapping[str, int]]) -> Iterator[str]:
    """Histograms, images, texts: their kinds and how many of each."""
    counts: Counter[str] = Counter()
    for each in found:
        counts.update(each)
    for kind, count in sorted(counts.items()):
        yield f"{count} of TensorBoard's {kind}"
