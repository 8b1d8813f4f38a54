"""What a bug report has to say of the machine; nothing of the project is run or imported."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ddpify import __version__
from ddpify.settings import SettingsError, nearest_pyproject
from ddpify.verify.which import chosen

_SECONDS = 20
_TORCH = "from importlib.metadata import version; print(version('torch'))"


def lines(python: str | None) -> Iterator[tuple[str, str]]:
    """What, and which; ``python``: the interpreter that trains, if it is named."""
    trains = python or chosen(Path("train.py")).python  # as verify, from here
    yield "ddpify", f"{__version__} ({Path(__file__).parent})"
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "system", platform.platform()
    yield "PyTorch", f"{_said(trains, '-c', _TORCH) or 'none'} (of {trains})"
    yield "GPUs", _gpus()
    yield "settings", _settings()


def _gpus() -> str:
    names = _said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    return f"{len(names)} ({', '.join(dict.fromkeys(names))})" if names else "none that is seen"


def _settings() -> str:
    try:
        return str(nearest_pyproject(Path()) or "none")
    except SettingsError as error:
        return str(error)


def _said(*command: str) -> str:
    """What a command prints; "" where it cannot be run or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
