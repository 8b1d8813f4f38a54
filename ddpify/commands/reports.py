"""The files that ``ddpify verify`` writes beside its summary: where they go, and that they can."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.shared import Stop

if TYPE_CHECKING:
    from ddpify.verify.verdict import Verification

_JOB = "GITHUB_STEP_SUMMARY"  # names the file that GitHub shows beside a job


@dataclass(frozen=True)
class Reports:
    """What was asked for: files, or - for standard output."""

    html: str | None = None
    json: str | None = None
    markdown: str | None = None
    junit: str | None = None
    summary: bool = False

    @property
    def on_stdout(self) -> bool:
        return any(target == "-" for _, target in self._targets())

    def prepare(self) -> None:
        """Make folders. Raises Stop, before anything runs, for what could not be written after."""
        if self.summary and not os.environ.get(_JOB):
            raise Stop(f"--summary: {_JOB} is not set, as GitHub sets it; --markdown FILE is alike")
        for _, target in self._targets():
            if target != "-":
                _prepare(Path(target))

    def write(self, verification: Verification) -> None:
        """Raises Stop."""
        for kind, target in self._targets():
            _write(target, "w", _rendered(kind, verification))
        if self.summary:
            _write(os.environ[_JOB], "a", _rendered("markdown", verification))

    def _targets(self) -> Iterator[tuple[str, str]]:
        for kind in ("html", "json", "markdown", "junit"):
            target = getattr(self, kind)
            if target:
                yield kind, target


def _prepare(file: Path) -> None:
    if file.is_dir():
        raise Stop(f"{file}: is a folder; name a file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Stop(f"{file}: cannot be written ({error.strerror})") from error
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise Stop(f"{file}: cannot be written (Permission denied)")


def _rendered(kind: str, verification: Verification) -> str:
    text: str = import_module(f"ddpify.verify.report.{kind}").render(verification)
    return text


def _write(target: str, mode: str, text: str) -> None:
    try:
        with click.open_file(target, mode, encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise Stop(f"{target}: cannot be written ({error.strerror})") from error
