"""`migrate --interactive`: by rule, as `git add -p`; without what it needs no program starts."""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify import cli, todo
from tests.house.test_what_is_named import put_example
from tests.lightning.test_configured import NORM, project
from tests.projects import put_fixture

Answer = Callable[[str], int]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    put_fixture("vae", tmp_path / "vae")
    monkeypatch.chdir(tmp_path / "vae")

    def run(typed: str) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{one}\n" for one in typed)))
        return cli.main(["migrate", "main.py", "--interactive", "--inplace", "--force"])

    return run


def test_prints_may_be_left_and_nothing_else_changes(
    answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every rank prints then, which is no error: the program starts, and what is left is said."""
    entry = Path("main.py")
    prints = entry.read_text().count("print(")
    assert answer("a?" + "a" * 8 + "d" + "a" * 12) == 0
    shown = capsys.readouterr()
    assert "d - leave out this change and all later ones of this rule" in shown.err
    assert "DDP501: make this change [y,n,a,d,q,?]?" in shown.err
    text = entry.read_text()
    assert text.count("print(") == prints
    assert "print_on_main" not in text
    assert "wrap_model(" in text
    assert todo.MARK not in text
    assert "DDP501 every rank would print this line. it was left out" in shown.out


def test_what_has_to_be_done_is_marked_where_it_is_left_out(
    answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer("aaaaa" + "n" + "a" * 14) == 1
    text = Path("main.py").read_text()
    assert text.count(todo.MARK) == 1
    assert "SystemExit" in text
    assert "it was left out" in capsys.readouterr().out
    assert cli.main(["check", "--no-cache"]) == 1
    assert "DDP008" in capsys.readouterr().out


def test_what_was_marked_and_not_done_is_done_by_the_next_migration(answer: Answer) -> None:
    """Its imports go where they belong, though a guard stands above the statements."""
    assert answer("a" + "n" + "a" * 20) == 1
    entry = Path("main.py")
    assert "setup_distributed" not in entry.read_text()
    comment = r"(?m)^# ddpify: TODO DDP101.*\n(#   .*\n)*"
    entry.write_text(re.sub(comment, "", entry.read_text()))
    assert cli.main(["migrate", "main.py", "--inplace", "--force"]) == 0
    nodes = ast.walk(ast.parse(entry.read_text()))
    taken = {n.module: {a.name for a in n.names} for n in nodes if isinstance(n, ast.ImportFrom)}
    assert taken["ddp_metrics"] == {"reduce_sum"}
    assert {"setup_distributed", "cleanup_distributed"} <= taken["ddp_utils"]


def test_a_question_that_all_ranks_ask_is_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of most programs the rule is a note; in one that is migrated ranks would wait for answers."""
    put_example("DDP507", 0, tmp_path / "net")
    monkeypatch.chdir(tmp_path / "net")
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n" * 8 + "n\n" + "a\n" * 3))
    assert cli.main(["migrate", "main.py", "--interactive", "--inplace"]) == 1
    assert "# ddpify: TODO DDP507 every rank would ask" in Path("main.py").read_text()


def test_what_a_configuration_or_its_launch_line_lacks_is_marked_in_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Trainer that gets less there than the rest was made for trains something else."""
    project(tmp_path, "main.py", NORM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n" * 4 + "n\n" + "a\n" * 3))
    assert cli.main(["migrate", "main.py", "--interactive", "--inplace"]) == 1
    assert "# ddpify: TODO run.sh:2: DDP963 " in Path("main.py").read_text()


@pytest.mark.parametrize("typed", ["yyq", "d" * 20], ids=["quit", "all-left"])
def test_nothing_is_written_if_nothing_is_chosen(
    answer: Answer, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("main.py").read_bytes()
    assert answer(typed) == 0
    assert capsys.readouterr().err.endswith("Nothing was chosen: nothing is written.\n")
    assert Path("main.py").read_bytes() == before
    assert not Path("ddp_utils.py").exists()
