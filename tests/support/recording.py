"""A run as observe.py wrote it down: one Run per rank, the vocabulary of the comparisons."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Step:
    """The state after one optimizer step; parameters are flat float64, in group order."""

    optimizer: str
    parameters: tuple[torch.Tensor, ...]
    gradient_norms: tuple[float | None, ...]


@dataclass(frozen=True)
class Event:
    """fetch, end (of a pass over a loader), backward, step, collective, ddp or ddp_forward."""

    kind: str
    loader: int = -1  # numbered by first use
    passed: int = -1  # the loader's earlier passes
    samples: tuple[int | str, ...] = ()
    grad: bool = False
    sync: bool = False
    name: str = ""
    site: str = ""


@dataclass(frozen=True)
class FileEvent:
    """A path, relative to the watched folder, that was written, made, renamed or removed."""

    operation: str
    path: str
    existed: bool
    steps: int


@dataclass(frozen=True)
class Run:
    """One rank. ``status``: finished, exited, "running" (it was killed), or the exception."""

    rank: int
    world_size: int
    status: str
    exit_code: int | None
    group_left_open: bool
    steps: tuple[Step, ...]
    events: tuple[Event, ...]
    files: tuple[FileEvent, ...]
    stdout: str = ""
    stderr: str = ""
    returncode: int = 0  # of what was launched: torchrun, or python for a single run
    launcher_output: str = ""

    @property
    def collectives(self) -> tuple[str, ...]:
        return tuple(event.name for event in self.events if event.kind == "collective")

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)


def load_run(out: Path, rank: int, **launch: Any) -> Run:
    """The recording of ``rank``; without steps, events and files where the process was killed."""
    path = out / f"rank{rank}.json"
    if not path.exists():
        return Run(rank, 0, "not started", None, False, (), (), (), **launch)
    summary = json.loads(path.read_text(encoding="utf-8"))
    content = out / f"rank{rank}.pt"
    raw = torch.load(content) if content.exists() else {"steps": (), "events": (), "files": ()}
    return Run(
        **summary,
        steps=tuple(_step(step) for step in raw["steps"]),
        events=tuple(_event(event) for event in raw["events"]),
        files=tuple(FileEvent(**event) for event in raw["files"]),
        **launch,
    )


def _step(raw: dict[str, Any]) -> Step:
    return Step(raw["optimizer"], tuple(raw["parameters"]), tuple(raw["gradient_norms"]))


def _event(raw: dict[str, Any]) -> Event:
    known = {key: raw[key] for key in raw.keys() & {"kind", "loader", "grad", "sync", "name"}}
    return Event(
        **known,
        passed=raw.get("pass", -1),
        samples=tuple(raw.get("samples", ())),
        site=raw.get("site", ""),
    )
