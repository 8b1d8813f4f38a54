"""What people read: the summary after a migration, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify.outcome import Refusal
from ddpify.report import json as json_report
from ddpify.report import text
from tests.report.samples import at, outcome


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        pytest.param("", "", id="here"),
        pytest.param("a/b", "a/b/", id="below"),
        pytest.param("../other", "{top}/other/", id="elsewhere"),
    ],
)
def test_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, expected: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert text.prefix(here / folder) == expected.format(top=tmp_path)


@pytest.mark.parametrize(
    ("refusal", "line"),
    [
        pytest.param(Refusal("no training loop", at(3)), "main.py:3: no training loop", id="site"),
        pytest.param(Refusal("x.py: cannot be read"), "x.py: cannot be read", id="no-site"),
        pytest.param(Refusal("main.py:3: wrong", at(3)), "main.py:3: wrong", id="site-in-message"),
    ],
)
def test_refusals_are_one_line(refusal: Refusal, line: str) -> None:
    assert text.refusal(refusal) == f"ddpify: {line}"


def test_json_holds_everything(tmp_path: Path) -> None:
    refusals = (Refusal("no loop", at(3)), Refusal("nothing here"))
    document = json.loads(
        json_report.render(outcome(tmp_path, refusals=refusals), [tmp_path / "main.py"])
    )
    assert document["schema"] == 1
    assert document["written"] == [str(tmp_path / "main.py")]
    assert document["commands"] == ["torchrun --standalone --nproc_per_node=gpu main.py"]
    assert [change["path"] for change in document["changes"]] == ["main.py", "ddp_utils.py"]
    hunk = document["changes"][0]["hunks"][2]
    assert hunk["reasons"] == [{"rule": "D601", "reason": "every rank saves"}]
    assert "+if is_main_process():" in hunk["lines"]
    found = document["findings"][0]
    assert (found["rule"], found["line"], found["column"], found["fixable"]) == (
        "D402",
        20,
        1,
        False,
    )
    assert found["because"][0]["message"] == "made here"
    assert document["clashes"][0]["rules"] == ["D201", "D501"]
    assert document["notes"][0]["message"] == "the model comes from a registry"
    assert [refusal["message"] for refusal in document["refusals"]] == ["no loop", "nothing here"]
