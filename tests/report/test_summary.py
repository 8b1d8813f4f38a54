"""What is said after a diff and after a migration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify.outcome import Account, Note
from ddpify.report import json as json_report
from ddpify.report import summary
from ddpify.report.spelled import spelled
from tests.report.samples import AFTER, HAND, at, line_of, outcome

GIVEN = {
    "differences": ("dropout (main.py:20): other masks",),
    "arguments": (("main.py", ("--epochs", "2", "--out", "a b")),),
    "clashes": (),
}
WRITTEN = """\
Wrote 2 files:
  main.py
  data.py
4 hunks in 2 files, by kind (`ddpify rule CODE` explains):
  project      D002    1  the helpers
  data         D201    1  an epoch needs its own order
  output       D501    1  every rank prints
  checkpoints  D601    1  every rank saves
Not the same as in one process:
  dropout (main.py:23): other masks
Left to do by hand:
  main.py:23: D402 the loss is a sum over the batch. Divide it by the world size
Notes:
  main.py:10: the model comes from a registry
Run it (arguments as before):
  torchrun --standalone --nproc_per_node=gpu main.py
Prove it (one process against two, in scratch copies; without --steps: the whole run):
  ddpify verify main.py --steps 20 -- --epochs 2 --out 'a b'
"""


def test_after_writing_lines_are_those_of_the_written_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = [tmp_path / "main.py", tmp_path / "data.py"]
    assert summary.done(outcome(tmp_path, **GIVEN), "", written) == WRITTEN
    assert HAND.site.span.line == 20, "three lines are added above"


def test_a_line_that_was_put_under_a_condition_is_found_again(tmp_path: Path) -> None:
    """By its text: it has another indentation, and a line of another beginning above."""
    told = spelled(outcome(tmp_path), "src/", written=True)
    for text in ("print(epoch)", "torch.save"):
        old, new = line_of(text), line_of(text, AFTER)
        assert old != new
        assert told(f"see main.py:{old}, now") == f"see src/main.py:{new}, now"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("main.py:3: no loop", "src/main.py:3: no loop", id="line"),
        pytest.param("main.py: no loop", "src/main.py: no loop", id="file"),
        pytest.param("`--accept D1@main.py:3`", "`--accept D1@src/main.py:3`", id="flag"),
        pytest.param("there/main.py, torch.nn", "there/main.py, torch.nn", id="no-file-of-it"),
        pytest.param("/abs/main.py and a b.py:1", "/abs/main.py and src/a b.py:1", id="spaces"),
        pytest.param("run --f=main.py.", "run --f=src/main.py.", id="argument"),
        pytest.param("main.py.bak, main.py~", "main.py.bak, main.py~", id="another-ending"),
        pytest.param(r"C:\x\main.py:3", r"C:\x\main.py:3", id="windows"),
        pytest.param("https://x.org/?f=main.py", "https://x.org/?f=main.py", id="address"),
    ],
)
def test_places_lead_from_the_current_folder(tmp_path: Path, text: str, shown: str) -> None:
    found = outcome(tmp_path, files=("main.py", "a b.py"))
    assert spelled(found, "src/")(text) == shown


def test_a_dry_run_names_the_command_that_writes_and_no_files(tmp_path: Path) -> None:
    shown = summary.planned(outcome(tmp_path), "", "ddpify migrate 'a b.py' --inplace")
    assert "Wrote" not in shown
    assert "main.py:20: D402" in shown
    assert shown.endswith("this does it:\n  ddpify migrate 'a b.py' --inplace\n")


def test_commands_can_be_pasted(tmp_path: Path) -> None:
    shown = summary.done(outcome(tmp_path), "my dir/", (), "../as it was")
    assert "--nproc_per_node=gpu 'my dir/main.py'\n" in shown
    assert "verify 'my dir/main.py' --baseline '../as it was' --steps 20\n" in shown


def test_nothing_to_change_is_one_sentence(tmp_path: Path) -> None:
    found = outcome(tmp_path, changes=(), findings=(), clashes=(), notes=())
    assert summary.planned(found, "src/") == "Nothing to change in src/main.py.\n"
    assert summary.done(found) == "Nothing to change in main.py.\n"


@pytest.mark.parametrize(
    ("left", "line"),
    [
        pytest.param(0, "418 uses of 37 values followed; none is left out.", id="all"),
        pytest.param(1, "418 uses of 37 values followed; 1 not: main.py:1 the model.", id="one"),
        pytest.param(
            5,
            "418 uses of 37 values followed; 5 not: main.py:1 the model, main.py:2 the model,"
            " main.py:3 the model, and 2 more.",
            id="many",
        ),
    ],
)
def test_the_summary_ends_with_what_was_followed(tmp_path: Path, left: int, line: str) -> None:
    account = Account(418, 37, tuple(Note(at(n), "the model") for n in range(1, left + 1)))
    found = outcome(tmp_path, account=account)
    assert summary.planned(found).splitlines()[-1] == line
    document = json.loads(json_report.render(found))
    assert document["followed"]["uses"] == 418
    assert [one["line"] for one in document["followed"]["not"]] == list(range(1, left + 1))
