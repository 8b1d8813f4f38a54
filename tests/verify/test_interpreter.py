"""An interpreter that cannot run the programs is refused before anything is copied or run."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
import torch

from ddpify.verify.interpreter import InterpreterError, examined


def refuse(python: str) -> None:
    with examined(python):
        raise AssertionError("it is usable")


def test_what_this_interpreter_has_and_answers(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(
        "import sys, torch\ndef main(a, b):\n    print('noise')\n    return [a + b, sys.path]\n"
    )
    with examined(sys.executable) as found:
        assert found.python == sys.executable
        assert found.torch == torch.__version__
        assert found.gpus == torch.cuda.device_count()
        assert found.cuda_available == torch.cuda.is_available()
        total, path = found.ask(script, 1, 2)
        assert total == 3
        assert str(tmp_path) not in path
        with pytest.raises(InterpreterError, match="TypeError"):
            found.ask(script, 1)
        assert found.ask(script, 2, 3)[0] == 5, "one that failed is not the end"
        script.write_text("import os\ndef main():\n    os._exit(3)\n")
        with pytest.raises(InterpreterError, match="ends with code 3"):
            found.ask(script)


def test_a_missing_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InterpreterError, match=r"^/.*/python: cannot be started: No such file"):
        refuse(str(tmp_path / "python"))


def test_one_without_torch_is_refused(tmp_path: Path) -> None:
    """A virtual environment made by hand: an empty one, of the same Python."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(sys.executable)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")

    with pytest.raises(InterpreterError, match="/bin/python: has no PyTorch; install ddpify where"):
        refuse(str(python))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("__version__ = '2.3.1+cu118'\n", "has PyTorch 2.3.1.cu118; 2.4 or newer is needed"),
        ("raise OSError('libcudart.so')\n", "cannot be imported: OSError: libcudart.so"),
        ("import no_such_thing\n", "cannot be imported: no_such_thing is missing"),
    ],
)
def test_an_unusable_torch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, message: str
) -> None:
    cuda = (
        "class cuda:\n    is_available = staticmethod(bool)\n    device_count = staticmethod(int)\n"
    )
    (tmp_path / "torch.py").write_text(cuda + module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(InterpreterError, match=message):
        refuse(sys.executable)


def test_a_project_module_named_torch_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '1.0'\n")
    monkeypatch.chdir(tmp_path)

    with examined(sys.executable) as found:
        assert found.torch == torch.__version__


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo hello", "does not answer as Python does"),
        ("echo broken install >&2; exit 3", "ends with code 3: broken install"),
        ("""echo '{"python": [3, 9]}'""", "is Python 3.9; 3.10 is needed"),
    ],
)
def test_what_is_no_usable_python_is_refused(tmp_path: Path, script: str, message: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    with pytest.raises(InterpreterError, match=message):
        refuse(str(program))
