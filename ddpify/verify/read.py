"""Reads what an observer wrote: a Run for each rank, and how far a run is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddpify.verify import recording
from ddpify.verify.recording import EventRecord, RunRecord, Signature

_Line = dict[str, Any]
_Record = TypeVar("_Record")


@dataclass(frozen=True)
class Progress:
    """Of all ranks: the most steps, the latest loss of the first rank that has one.

    ``events`` grows whenever anything was recorded in any rank.
    """

    steps: int
    loss: float | None
    events: int


def progress(out: Path) -> Progress:
    """Cheap enough to be asked several times a second."""
    steps, events, losses = 0, 0, []
    for path in sorted(out.glob("rank*.now"), key=lambda one: int(one.stem[4:])):
        words = path.read_text(encoding="ascii", errors="replace").split()
        if len(words) == 3:  # else it is about to be written for the first time
            events += int(words[0])
            steps = max(steps, int(words[1]))
            losses += [float(words[2])] if words[2] != "None" else []
    return Progress(steps, losses[0] if losses else None, events)


def load_run(out: Path, rank: int, *, stdout: str = "", stderr: str = "") -> RunRecord:
    """The record of ``rank``, as far as it was written: a killed process ends in mid-air."""
    path = out / f"rank{rank}.jsonl"
    if not path.exists():
        return RunRecord(rank=rank, stdout=stdout, stderr=stderr)
    lines = _lines(path)
    begin, finish, held = (_last(lines, kind) for kind in ("begin", "finish", "held"))
    signatures = _Signatures(out / f"rank{rank}.f64")
    optimizers = [line for line in lines if line["k"] == "optimizer"]
    status = finish.get("status", "running")
    return RunRecord(
        rank=rank,
        world_size=begin.get("world_size", 1),
        status=status,
        exit_code=finish.get("exit_code"),
        traceback=finish.get("traceback", ""),
        group_left_open=finish.get("group_left_open", False),
        backend=_backend(lines),
        device=optimizers[0]["device"] if optimizers else "cpu",
        optimizers=tuple(
            _optimizer(number, line, signatures) for number, line in enumerate(optimizers)
        ),
        steps=tuple(_step(line, signatures) for line in lines if line["k"] == "step"),
        events=_events(lines),
        waits=_waits(lines),
        began=begin.get("clock", 0.0),
        ended=max((line["t"] for line in lines), default=0.0),
        loaders=tuple(_made(recording.LoaderRecord, one) for one in lines if one["k"] == "loader"),
        noise=_noise(lines),
        probe=_probe(_last(lines, "probe"), signatures),
        wrapped=_wrapped(lines),
        data_parallel=any(line["k"] == "data parallel" for line in lines),
        held=_made(recording.HeldRecord, held) if held else None,
        trainer=_last(lines, "trainer").get("arguments", ""),
        unsupported=_last(lines, "unsupported").get("why", ""),
        stdout=stdout,
        stderr=stderr,
        stack=_text(out / f"rank{rank}.stack"),
        waiting=_waiting(lines, status),
    )


def last_note(out: Path, kind: str) -> dict[str, Any]:
    """The last line of one kind that the first rank wrote; empty if there is none."""
    return _last(_lines(out / "rank0.jsonl"), kind)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class _Signatures:
    """The file of numbers, which is read only where it is looked at."""

    def __init__(self, path: Path) -> None:
        filled = path.exists() and path.stat().st_size >= 8
        self._numbers: NDArray[np.float64] = (
            np.memmap(path, dtype=np.float64, mode="r") if filled else np.empty(0)
        )

    def __getitem__(self, place: Sequence[int]) -> Signature:
        start, count = place
        return np.asarray(self._numbers[start : start + count])

    def all(self, places: Iterable[Sequence[int]]) -> tuple[Signature, ...]:
        return tuple(self[place] for place in places)


def _lines(path: Path) -> list[_Line]:
    """Whole lines only; forked workers add to the file, so any line may be torn at a kill."""
    found = []
    for text in _text(path).split("\n"):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "k" in line:
            found.append(line)
    return found


def _last(lines: list[_Line], kind: str) -> _Line:
    return next((line for line in reversed(lines) if line["k"] == kind), {})


def _made(record: type[_Record], line: _Line, /, **known: object) -> _Record:
    """A record of what a line says under the names of its fields, and of what is ``known``."""
    names = {one.name for one in fields(record)} & line.keys()  # type: ignore[arg-type]
    said = {n: tuple(line[n]) if isinstance(line[n], list) else line[n] for n in names}
    return record(**(said | known))


def _optimizer(number: int, line: _Line, signatures: _Signatures) -> recording.Optimizer:
    parameters = (
        recording.Parameter(name, tuple(shape), dtype) for name, shape, dtype in line["parameters"]
    )
    return _made(
        recording.Optimizer,
        line,
        number=number,
        kind=line["type"],
        parameters=tuple(parameters),
        initial=signatures.all(line["initial"]),
    )


def _step(line: _Line, signatures: _Signatures) -> recording.StepRecord:
    return _made(
        recording.StepRecord,
        line,
        number=line["s"],
        gradients=tuple(place and signatures[place] for place in line["gradients"]),
        parameters=signatures.all(line["parameters"]),
    )


_EVENTS: dict[str, type[EventRecord]] = {
    "fetch": recording.Fetch,
    "end": recording.EndRecord,
    "shuffle": recording.ShuffleRecord,
    "loaded": recording.Loaded,
    "forward": recording.ForwardRecord,
    "backward": recording.Backward,
    "step": recording.StepTaken,
    "collective": recording.CollectiveRecord,
    "file": recording.FileChange,
}


def _events(lines: list[_Line]) -> tuple[EventRecord, ...]:
    left = {line["of"] for line in lines if line["k"] == "leave" and line["done"]}
    return tuple(_event(line, left) for line in lines if line["k"] in _EVENTS)


def _event(line: _Line, left: set[int]) -> EventRecord:
    known = {"steps": line["s"], "seconds": line["t"]}
    if line["k"] == "step":
        known["number"] = line["s"]
    elif line["k"] == "collective":
        known["done"] = line["i"] in left
    return _made(_EVENTS[line["k"]], line, **known)


def _waits(lines: list[_Line]) -> tuple[recording.WaitRecord, ...]:
    left = {line["of"]: line["t"] for line in lines if line["k"] == "leave"}
    return tuple(
        recording.WaitRecord(line["name"], line["site"], line["t"], left.get(line["i"]))
        for line in lines
        if line["k"] in ("collective", "implicit")
    )


def _noise(lines: list[_Line]) -> recording.NoiseRecord:
    counts = next((line["noise"] for line in reversed(lines) if "noise" in line), (0, 0))
    loaded = sum(line["k"] == "augmentation" for line in lines)
    return recording.NoiseRecord(
        dropout=counts[0],
        batchnorm=counts[1],
        augmentation=loaded,
        draws=sum(line["k"] == "draws" for line in lines),
        rows=tuple(line["detail"] for line in lines if line["k"] == "rows"),
        shared=tuple(line["detail"] for line in lines if line["k"] == "shared"),
    )


def _probe(line: _Line, signatures: _Signatures) -> recording.ProbeRecord | None:
    if not line:
        return None
    output = signatures[line["output"]] if line["output"] else None
    return _made(recording.ProbeRecord, line, output=output)


def _wrapped(lines: list[_Line]) -> tuple[str, ...]:
    names = (
        line["names"] if line["k"] == "wrapped" else line["sharded"]
        for line in lines
        if line["k"] in ("wrapped", "optimizer")
    )
    return tuple(dict.fromkeys(name for some in names for name in some))


def _backend(lines: list[_Line]) -> str:
    return next((line["backend"] for line in reversed(lines) if line.get("backend")), "")


def _waiting(lines: list[_Line], status: str) -> str:
    """The innermost collective that was entered and not left when the process ended.

    One that was left by the exception that ended the run (a timeout) counts as not left.
    """
    if RunRecord(status=status).over:
        return ""
    entered: dict[int, _Line] = {}
    failed: _Line = {}
    for line in lines:
        if line["k"] in ("collective", "implicit"):
            entered[line["i"]] = line
            failed = {}
        elif line["k"] == "leave":
            ended = entered.pop(line["of"], {})
            failed = {} if line["done"] else failed or ended
        elif line["k"] not in ("finish", "file"):
            failed = {}
    place = list(entered.values())[-1] if entered else failed
    return f"{place['name']} at {place['site']}" if place else ""
