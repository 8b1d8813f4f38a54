"""The Python that runs the user's programs, and the PyTorch it has.

One process of it is started, and answers whatever has to be asked of its libraries until the end:
importing torch takes longer than most answers.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

OLDEST_PYTHON: Final = (3, 10)
OLDEST_TORCH: Final = (2, 4)
LIMIT: Final = 300  # seconds: a first import of torch from a network drive is slow
PATIENCE: Final = 600  # seconds, for an answer

# Not the working folder: the user's project may have a module named as one that torch imports.
# Then a line of standard input is a script and the arguments of its `main`.
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
print(json.dumps(found), flush=True)
for line in sys.stdin:
    script, arguments = json.loads(line)
    names = {"__name__": "asked"}
    try:
        with open(script, encoding="utf-8") as file:
            exec(compile(file.read(), script, "exec"), names)
        answer = {"answer": names["main"](*arguments)}
    except Exception as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print()
    print(json.dumps(answer), flush=True)
"""


class InterpreterError(Exception):
    """The interpreter cannot run the programs, or gives no answer; one sentence for the user."""


@dataclass(frozen=True)
class Server:
    """A process of the interpreter; ``facts`` are what it said of itself."""

    python: str
    process: subprocess.Popen[str]
    errors: IO[bytes]
    facts: dict[str, Any] = field(default_factory=dict)

    def send(self, script: Path, arguments: tuple[Any, ...]) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it is gone: then there is no answer, either
            self.process.stdin.write(json.dumps([str(script), arguments]) + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line that is a JSON object: libraries print what they like."""
        assert self.process.stdout is not None
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                with suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict):
                        return found
            late = timer.finished.is_set()
        finally:
            timer.cancel()
        if late:
            raise InterpreterError(f"{self.python}: gave no answer for {seconds} s")
        if code := self.process.wait():
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip().splitlines()
            last = said[-1] if said else "no message"
            raise InterpreterError(f"{self.python}: ends with code {code}: {last}")
        raise InterpreterError(f"{self.python}: does not answer as Python does")


@dataclass(frozen=True)
class Interpreter:
    """``torch`` is its version, ``gpus`` how many CUDA devices it sees."""

    python: str
    torch: str
    gpus: int
    cuda_available: bool
    server: Server

    def ask(self, script: Path, *arguments: Any) -> Any:
        """What ``main`` of a script returns; both sides of it are JSON. Raises InterpreterError."""
        self.server.send(script, arguments)
        found = self.server.answer(PATIENCE)
        if "answer" not in found:
            raise InterpreterError(f"{self.python}: {found.get('failed', 'gives no answer')}")
        return found["answer"]


@contextmanager
def examined(python: str) -> Iterator[Interpreter]:
    """The interpreter, which can be asked until the end of the block. Raises InterpreterError."""
    server = _started(python)
    try:
        _refuse(python, server.facts)
        known = server.facts
        yield Interpreter(python, known["torch"], known["gpus"], known["cuda"], server)
    finally:
        _ended(server)


def _started(python: str) -> Server:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
    try:
        process = subprocess.Popen(
            [python, "-c", LOOK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        errors.close()
        reason = error.strerror or str(error)
        raise InterpreterError(f"{python}: cannot be started: {reason}") from error
    server = Server(python, process, errors)
    try:
        server.facts.update(server.answer(LIMIT))
    except BaseException:
        server.close()
        raise
    return server


def _ended(server: Server) -> None:
    server.close()


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
