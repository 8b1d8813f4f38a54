"""`migrate --partial`: what is certain is changed, the rest marked, and nothing runs half done."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify import cli, todo
from ddpify.commands.migrate import PARTIAL
from ddpify.outcome import Outcome, Refusal
from ddpify.partial import marked
from ddpify.site import Site, Span
from ddpify.source import Source
from tests.house.test_what_is_named import put_example

ASKED = "DDP406 the model keeps this of a batch"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_example("DDP406", 3, tmp_path / "net")
    monkeypatch.chdir(tmp_path / "net")
    return tmp_path / "net"


def line_of(text: str, file: Path) -> int:
    """Where a file says something."""
    return next(n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)


def test_from_a_refusal_to_a_migrated_program(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = project / "main.py"
    assert cli.main(["migrate", "main.py", "--inplace"]) == 2
    assert capsys.readouterr().err.endswith(f"ddpify: {PARTIAL}\n")
    assert cli.main(["migrate", "main.py", "--inplace", "--partial"]) == 1
    place = f"main.py:{line_of(todo.MARK, entry)}"
    said = capsys.readouterr().out
    assert f"the program does not start:\n  {place}: {ASKED}" in said
    assert "helpers: `from ddp_metrics import whole_batch`" in said
    assert "torchrun" not in said.rpartition("Left to do")[2], "it does not start"
    assert line_of("self.kept[begin", entry) > line_of(todo.MARK, entry)
    assert "wrap_model(" in entry.read_text()

    done = subprocess.run([sys.executable, entry], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ddpify: TODO: {ASKED}")
    assert cli.main(["check", "--no-cache"]) == 1
    assert f"{place}:1: error DDP008 {ASKED}" in capsys.readouterr().out
    assert cli.main(["migrate", "main.py", "--inplace", "--partial"]) == 2
    assert f"ddpify: {place}: DDP008 TODO {ASKED}" in capsys.readouterr().err

    lines = entry.read_text().splitlines(keepends=True)
    first = line_of(todo.MARK, entry) - 1
    last = line_of("self.kept[begin", entry) - 1
    entry.write_text("".join([*lines[:first], *lines[last:]]))
    accept = f"--accept=DDP406@main.py:{first + 1}"
    assert cli.main(["migrate", "main.py", "--inplace", accept]) == 0
    assert "SystemExit" not in entry.read_text()
    assert "the program may start" in capsys.readouterr().out


def test_what_is_no_program_of_one_process_stays_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "done.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
    )
    assert cli.main(["migrate", "done.py", "--partial", "--inplace"]) == 2
    assert "already distributed" in capsys.readouterr().err


PLACES = '''\
#!/usr/bin/env python
# -*- coding: latin-1 -*-
"""About it,
\x0cand\x0b more."""
from __future__ import annotations; z = """
three
lines"""
import os
x = """
two lines"""; y = 1
@cached
def f(
    a,
):
    if a: return {"é":
        1}
    elif x:
        pass
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("line", range(1, 19))
def test_marks_leave_the_program_as_it_is(tmp_path: Path, line: int, newline: str) -> None:
    raw = PLACES.replace("\n", newline).encode("latin-1")
    source = Source.from_bytes(raw, tmp_path / "main.py", "main.py")
    site = Site("main.py", Span(line, 0, line, 0))
    said = 'say "no" to C:\\new, and so on, in a sentence of more than one line of a comment'
    outcome = Outcome(tmp_path, ("main.py",))
    found = marked(outcome, [Refusal(f"{site}: {said}", site)], {"main.py": source}, 60)
    (change,) = found.changes
    text = change.after.decode("latin-1")
    assert text.startswith(newline.join(PLACES.split("\n")[:2])), "the shebang, the encoding"
    before, after = ast.parse(raw), ast.parse(change.after)
    assert [todo.is_guard(node) for node in after.body] == [False] * 3 + [True] + [False] * 4
    guard = after.body[3]
    assert isinstance(guard, ast.Raise)
    assert said in ast.literal_eval(guard.exc.args[0])  # type: ignore[union-attr]
    assert ast.dump(todo.without_guard(after)) == ast.dump(before)
    ((at, told),) = todo.marks(text)
    assert told == said
    assert found.todos[0].site.span.line == at
