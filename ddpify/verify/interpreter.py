"""The Python that runs the user's programs, and the PyTorch it has."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import Any, Final

OLDEST_PYTHON: Final = (3, 10)
OLDEST_TORCH: Final = (2, 4)
LIMIT: Final = 300  # seconds: a first import of torch from a network drive is slow

# Not the working folder: the user's project may have a module named as one that torch imports.
LOOK: Final = """
import sys
sys.path = [folder for folder in sys.path if folder]
import json
found = {"python": list(sys.version_info[:2])}
try:
    import torch
    found["torch"] = torch.__version__
    found["cuda"] = torch.cuda.is_available()
    found["gpus"] = torch.cuda.device_count()
except ModuleNotFoundError as error:
    found["missing"] = error.name
except Exception as error:
    found["broken"] = f"{type(error).__name__}: {error}"
print()
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Interpreter:
    """``torch`` is its version, ``gpus`` how many CUDA devices it sees."""

    python: str
    torch: str
    gpus: int
    cuda_available: bool


class InterpreterError(Exception):
    """The interpreter cannot run the programs; one sentence for the user."""


def examine(python: str) -> Interpreter:
    """Start the interpreter once and ask it. Raises InterpreterError."""
    found = _ask(python)
    _refuse(python, found)
    return Interpreter(python, found["torch"], found["gpus"], found["cuda"])


def _ask(python: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-c", LOOK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except OSError as error:
        reason = error.strerror or str(error)
        raise InterpreterError(f"{python}: cannot be started: {reason}") from error
    except subprocess.TimeoutExpired as error:
        raise InterpreterError(f"{python}: importing torch took over {LIMIT} s") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise InterpreterError(f"{python}: ends with code {error.returncode}: {last}") from error
    except (ValueError, IndexError) as error:
        raise InterpreterError(f"{python}: does not answer as Python does") from error


def _refuse(python: str, found: dict[str, Any]) -> None:
    if tuple(found["python"]) < OLDEST_PYTHON:
        raise InterpreterError(f"{python}: is Python {_dotted(found['python'])}; 3.10 is needed")
    if found.get("missing") == "torch":
        raise InterpreterError(
            f"{python}: has no PyTorch; install ddpify where the project's torch is, or name its"
            " interpreter with --python"
        )
    if "torch" not in found or "gpus" not in found:
        reason = found.get("broken") or f"{found.get('missing')} is missing"
        raise InterpreterError(f"{python}: its PyTorch cannot be imported: {reason}")
    if _release(found["torch"]) < OLDEST_TORCH:
        raise InterpreterError(f"{python}: has PyTorch {found['torch']}; 2.4 or newer is needed")


def _release(version: str) -> tuple[int, ...]:
    """2.4.0a0+git1 → (2, 4)"""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))
