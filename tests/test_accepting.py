"""``--accept RULE@file:line``: a refusal that the user takes for right, and that is still said."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.rules.examples import SINGLE, changed
from ddpify.settings import Settings
from tests.projects import put_example
from tests.test_disposal import line_of, migrated

_STEP = "            adam.step()\n"
HIDDEN = changed(
    SINGLE,
    ("import torch\n", "import torch\nfrom hidden import clip\n"),
    (_STEP, f"            clip(net)\n{_STEP}"),
)
LINE = 1 + next(n for n, x in enumerate(HIDDEN.files[0][1].splitlines()) if "clip(net)" in x)
RIGHT = f"DDP006@main.py:{LINE}"


def outcome(folder: Path, *accept: str) -> Outcome:
    return migrate([put_example(HIDDEN, folder)], Settings(accept=accept, whole_batches=False))


def test_a_refusal_says_how_it_is_accepted(tmp_path: Path) -> None:
    (refusal,) = outcome(tmp_path).refusals
    assert f"`--accept {RIGHT}`" in refusal.message


def test_what_is_accepted_is_migrated_and_said(tmp_path: Path) -> None:
    found = outcome(tmp_path, RIGHT)
    assert not found.refusals
    assert found.changes
    said = [note for note in found.notes if "accepted by --accept" in note.message]
    assert [(note.site.path, note.site.span.line) for note in said] == [("main.py", LINE)]
    assert found.account is not None
    assert [note.site for note in found.account.left] == [said[0].site]


def test_the_file_may_be_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert not outcome(tmp_path, RIGHT.replace("main", "../main")).refusals


@pytest.mark.parametrize(
    "other", [f"DDP405@main.py:{LINE}", f"DDP006@main.py:{LINE + 1}", f"DDP006@man.py:{LINE}"]
)
def test_an_acceptance_of_something_else_is_named(tmp_path: Path, other: str) -> None:
    found = outcome(tmp_path, other)
    assert found.refusals
    assert [note.message for note in found.notes if other in note.message]


def test_an_acceptance_that_was_needed_is_not_called_idle(tmp_path: Path) -> None:
    found = outcome(tmp_path, RIGHT)
    assert not [note for note in found.notes if "no such refusal" in note.message]


def test_flags_add_to_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_example(HIDDEN, tmp_path)
    (tmp_path / "pyproject.toml").write_text(f'[tool.ddpify]\naccept = ["{RIGHT}"]\n')
    main = str(tmp_path / "main.py")
    assert cli.main(["migrate", main, "--accept", "DDP405@main.py:3"]) == 1
    said = capsys.readouterr().err
    assert "accepted by --accept" in said
    assert f"--accept DDP405@{main}:3: there is no such refusal" in said


def test_an_acceptance_has_a_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_example(HIDDEN, tmp_path)
    assert cli.main(["diff", str(tmp_path / "main.py"), "--accept", "main.py:3"]) == 2
    assert "RULE@file:line" in capsys.readouterr().err


def test_a_refusal_of_the_second_reading_is_accepted_too(tmp_path: Path) -> None:
    skip = "if random.random() < 0.1: continue"
    place = f"train.py:{line_of('BEFORE')}"
    refused = migrated(tmp_path, skip, settings=Settings(ignore=("DDP404",), whole_batches=False))
    rule = next(word for word in refused.refusals[0].message.split() if word.startswith("DDP"))
    settings = Settings(ignore=("DDP404",), accept=(f"{rule}@{place}",), whole_batches=False)
    found = migrated(tmp_path, skip, settings=settings)
    assert not found.refusals
    assert found.changes
    assert [n for n in found.notes if n.message.startswith(f"{rule} accepted by --accept")]
