"""The files both runs left that are compared by content: checkpoints and texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ddpify.verify.evidence import CheckpointPair, Text
from ddpify.verify.identity import Renamed, in_text
from ddpify.verify.interpreter import Interpreter, InterpreterError
from ddpify.verify.recording import Job, RunRecord

_SCRIPT = Path(__file__).parent / "observer" / "cross_load.py"
_SUFFIXES = (".pt", ".pth", ".ckpt", ".pth.tar")
_TEXT = 2**20  # bytes; a larger file is no log that somebody reads


def checkpoint_paths(
    reference: RunRecord, distributed: Job, left: Sequence[str]
) -> tuple[str, ...]:
    """Of the paths ``left`` by both what torch saved, under its last name or by its suffix.

    A copy of a checkpoint is written without torch: only its suffix tells.
    """
    saved = [_saved(run) for run in (reference, *distributed.runs)]
    known = saved[0] & frozenset().union(*saved[1:])
    return tuple(path for path in left if path in known or path.endswith(_SUFFIXES))


def compare_checkpoints(
    interpreter: Interpreter, reference: Path, distributed: Path, paths: Sequence[str]
) -> tuple[CheckpointPair, ...]:
    """Read each of ``paths`` in both folders; what is no checkpoint is left out."""
    if not paths:
        return ()
    try:
        found = interpreter.ask(_SCRIPT, str(reference), str(distributed), list(paths))
    except InterpreterError as error:
        return tuple(CheckpointPair(path, f"cannot be read: {error}", 0.0) for path in paths)
    return tuple(CheckpointPair(**pair) for pair in found)


def texts(
    reference: Path, distributed: Path, paths: Sequence[str], names: Sequence[Renamed] = ()
) -> tuple[Text, ...]:
    """Those of ``paths`` that are short texts in both folders, with the new names in them."""
    found = ((path, _text(reference / path), _text(distributed / path)) for path in paths)
    return tuple(
        Text(path, one, in_text(two, names))
        for path, one, two in found
        if not (one is None or two is None)
    )


def _saved(run: RunRecord) -> frozenset[str]:
    """Also under the name that the file was given afterwards."""
    saved = {change.path for change in run.files if change.operation == "torch.save"}
    for source, target in _renamed(run):
        if source in saved:
            saved.add(target)
    return frozenset(saved)


def _renamed(run: RunRecord) -> Iterator[tuple[str, str]]:
    """A rename is noted as two changes, of the old name and then of the new one."""
    names = [change.path for change in run.files if change.operation in ("os.rename", "os.replace")]
    yield from zip(names[0::2], names[1::2], strict=False)


def _text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _TEXT:
            return None
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text
