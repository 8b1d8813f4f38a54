"""Runs a training script as ``python script.py`` would, and writes down what it did.

    python observe.py --out DIR [options] -- script.py args...
    torchrun ... observe.py --out DIR [options] -- script.py args...

It runs in the user's interpreter, where ddpify need not be installed, and the script is not
edited for it. The record is read by ddpify.verify.read.
"""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

_HERE = Path(__file__).resolve().parent

# This folder's modules must not hide others of the same name, and the folder ddpify is installed
# in may hold another torch: so nothing is found by sys.path, and nothing is left behind.
if sys.path and sys.path[0] and Path(sys.path[0]).resolve() == _HERE:
    del sys.path[0]
for _name, _folder in (("ddpify", _HERE.parent), ("ddpify.verify", _HERE)):
    _package = ModuleType(_name)
    _package.__path__ = [str(_folder)]
    sys.modules[_name] = _package
from ddpify.verify.observer.watch import Session  # noqa: E402

for _name in [name for name in sys.modules if name.partition(".")[0] == "ddpify"]:
    del sys.modules[_name]


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(usage="observe.py --out DIR [options] -- script.py args...")
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder for the record")
    add("--watch", type=Path, default=Path(), help="folder whose files count")
    add("--global-order", type=int, default=0, help="draw samples as N ranks would")
    add("--order", type=Path, help="JSON: how ranks shuffled, see order.py")
    add("--evaluation-order", action="store_true", help="one order where evaluation shuffles")
    add("--batch-factor", type=int, default=1, help="multiply batch sizes")
    add("--dtype", choices=("float64", "float32"), default="float32", help="float32: as it is")
    add("--neutralise", action="append", default=[], choices=Session.NOISES)
    add("--steps", type=int, default=0, help="stop after so many optimizer steps")
    add("--overfit", type=int, default=0, help="train on the first so many samples only")
    add("--full", action="store_true", help="record every value of every tensor")
    add("--memory", action="store_true", help="measure the memory of one round of steps, then stop")
    add("--group-timeout", type=float, default=0, help="of process groups, seconds")
    add("--probe", type=Path, help="file for the inputs of the first training forward")
    if "--" not in argv:
        parser.error("missing: -- script.py args...")
    split = list(argv).index("--")
    command = list(argv[split + 1 :])
    if not command or command == ["-m"]:
        parser.error("missing: script.py args... after --")
    return parser.parse_args(argv[:split]), command


def execute(command: list[str]) -> None:
    """``script.py args`` or ``-m module args``, with sys.argv and sys.path as python sets them."""
    if command[0] == "-m":
        _search(os.getcwd())
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    _search(str(Path(command[0]).resolve().parent))
    sys.argv = command
    path = os.path.abspath(command[0])
    # It stays in place until the end, for what refers to __main__ then.
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = SourceFileLoader("__main__", path)
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _search(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def end_as_python_would(error: BaseException) -> None:
    """Print the traceback of an exception, without this file's frames. Raises SystemExit."""
    error.__traceback__ = script_frames(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)
    raise SystemExit(1)


def formatted(error: BaseException) -> str:
    """The traceback, from the script's first frame on."""
    lines = traceback.format_exception(type(error), error, script_frames(error.__traceback__))
    return "".join(lines)


def script_frames(trace: TracebackType | None) -> TracebackType | None:
    """From the first frame on that is neither this file's nor the import machinery's."""
    rest = trace
    while rest is not None and rest.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        rest = rest.tb_next
    while rest is not None and rest.tb_frame.f_code.co_filename.startswith("<frozen"):
        rest = rest.tb_next
    return rest or trace


def main(argv: Sequence[str]) -> None:
    options, command = parse(argv)
    session = Session(options)
    # First registered, so last called: after what the script itself does at exit.
    atexit.register(session.finish)
    session.start()
    try:
        execute(command)
    except session.STOP:
        session.end("stopped", 0)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        said = stop.code is not None and not isinstance(stop.code, int)
        status = f"SystemExit: {stop.code}" if said else "exited"
        session.end(status, code, formatted(stop) if code else "")
        raise
    except KeyboardInterrupt:
        session.end("KeyboardInterrupt: ", 130)
        raise
    except BaseException as error:
        session.end(f"{type(error).__name__}: {error}", 1, formatted(error))
        end_as_python_would(error)
    else:
        session.end("finished", 0)


if __name__ == "__main__":
    main(sys.argv[1:])
