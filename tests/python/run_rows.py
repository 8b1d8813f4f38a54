"""Python's own answer: runs the rows of the table, with a loader that remembers where it is made.

Started as a script in a process of its own; stdin: rows as JSON, stdout: what arrived in each.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import itertools
import json
import os
import runpy
import shutil
import sys
import types
from pathlib import Path
from typing import Any

CHOICES = (0, 1, "train", "digits", "letters")  # what `choose()` may give


class DataLoader:
    """Remembers the line that made it."""

    def __init__(self, *rows: Any) -> None:
        frame = sys._getframe(1)
        path = os.path.relpath(frame.f_code.co_filename)
        self.line = (path.replace(os.sep, "/"), frame.f_lineno)

    def __len__(self) -> int:
        return 2

    def close(self) -> None:
        """For `contextlib.closing`."""


def arrived(files: list[list[str]], folder: Path, choice: object) -> list[tuple[str, int]] | str:
    """The lines of what reaches `probe`, or why the program did not get that far."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    for name in ("log", "rows", "other"):
        (folder / name).touch()
    os.chdir(folder)
    known, path = set(sys.modules), list(sys.path)
    sys.path_importer_cache.clear()  # the folders are others than those of the row before
    sys.path[:0] = [str(folder), str(folder / "src")]
    seen: list[Any] = []
    choices = itertools.chain([choice] * 10, itertools.repeat(1))  # some row waits for a yes
    vars(builtins).update(probe=seen.append, choose=lambda: next(choices))
    error = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path("main.py", run_name="__main__")
    except (Exception, SystemExit) as problem:
        error = f"{type(problem).__name__}: {problem}"
    for name in set(sys.modules) - known:
        del sys.modules[name]
    sys.path[:] = path
    lines = [one.line for one in seen if isinstance(one, DataLoader)]
    return lines or error or "nothing came"


def main() -> None:
    """Each row, once for each choice."""
    data = types.ModuleType("torch.utils.data")
    vars(data)["DataLoader"] = DataLoader
    sys.modules.update({name: types.ModuleType(name) for name in ("torch", "torch.utils")})
    sys.modules["torch.utils.data"] = data
    sys.dont_write_bytecode = True
    folder = Path(sys.argv[1])
    rows = json.load(sys.stdin)
    answers = [[arrived(files, folder, one) for one in _choices(files)] for files in rows]
    json.dump(answers, sys.stdout)


def _choices(files: list[list[str]]) -> tuple[object, ...]:
    return CHOICES if any("choose()" in text for _, text in files) else CHOICES[:1]


if __name__ == "__main__":
    main()
