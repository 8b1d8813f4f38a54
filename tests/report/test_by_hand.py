"""What is left to somebody else can be carried out by somebody else."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from ddpify import cli, reading
from ddpify.checking.catalogue import catalogue
from ddpify.report.recipes import FOLLOWED, MIGRATED, PLAIN, WHOLE
from tests.projects import put, put_fixture

CODES = {rule.id for rule in catalogue()}
UNREAD = """import torch
from elsewhere import odd
from torch.utils.data import DataLoader

net = torch.nn.Linear(8, 1)
adam = torch.optim.Adam(net.parameters())
for x in DataLoader(torch.randn(64, 8), 16):
    odd(net(x), net).backward()
    adam.step()
"""


@pytest.mark.parametrize("recipes", [MIGRATED, PLAIN, {"DDP101": WHOLE}])
def test_code_is_python_and_is_for_a_rule(recipes: dict[str, str]) -> None:
    for rule, code in recipes.items():
        assert rule in CODES
        ast.parse(code)


@pytest.mark.parametrize("said", FOLLOWED)
def test_how_to_be_followed_is_said_of_refusals_that_there_are(said: str) -> None:
    assert said in Path(reading.__file__).read_text()


def test_what_was_written_elsewhere_is_compared_with_where_it_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put_fixture("gan", tmp_path / "gan")
    command = ["migrate", "-o", str(tmp_path / "out"), "--format=json", str(script)]
    assert cli.main(command) == cli.CLEAN
    (one,) = json.loads(capsys.readouterr().out)["by_hand"]
    assert one["proof"][1] == f"ddpify verify main.py --baseline {script.parent}"
    assert (tmp_path / "out/main.py").read_text().splitlines()[one["line"] - 1].strip() == one[
        "text"
    ]


def test_of_what_was_migrated_lines_are_those_that_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = put_fixture("gan", tmp_path / "gan")
    monkeypatch.chdir(script.parent)
    told = []
    for command in (["diff"], ["migrate", "--inplace"]):
        cli.main([*command, "--format=json", "main.py"])
        told.append(json.loads(capsys.readouterr().out)["by_hand"])
    (before,), (after,) = told
    assert before["line"] < after["line"], "there are lines above that were not there"
    for one in (before, after):
        assert (one["path"], one["rule"]) == ("main.py", "DDP702")
    lines = script.read_text().splitlines()
    assert lines[after["line"] - 1].strip() == after["text"]
    assert after["why"].startswith("A training loss or accuracy")
    assert "reduce_mean(" in after["code"]
    assert after["proof"] == [
        "ddpify check --select DDP702",
        "ddpify verify main.py --baseline COPY_OF_THE_ORIGINAL",
    ]


def test_of_what_was_refused_each_place_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put({"main.py": UNREAD}, tmp_path) / "main.py"
    (tmp_path / ".git").mkdir()
    flags = ["--format=json", "--no-whole-batches"]
    assert cli.main(["migrate", *flags, str(script)]) == cli.FAILED
    document = json.loads(capsys.readouterr().out)
    assert [one["rule"] for one in document["by_hand"]] == ["DDP006", "DDP401", "DDP006"]
    for one in document["by_hand"]:
        assert UNREAD.splitlines()[one["line"] - 1].strip() == one["text"]
        assert one["accept"] == f"{one['rule']}@main.py:{one['line']}"
        assert one["what"]
        assert one["write"]
        assert one["proof"] == ["ddpify check", "ddpify verify main.py --baseline HEAD"]


def test_what_no_line_is_about_leaves_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["diff", "--format=json", str(tmp_path / "no.py")]) == cli.FAILED
    assert json.loads(capsys.readouterr().out)["by_hand"] == []


def test_a_plan_has_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = put_fixture("gan", tmp_path / "gan")
    assert cli.main(["plan", "--format=json", str(script)]) == cli.CLEAN
    (one,) = json.loads(capsys.readouterr().out)["by_hand"]
    assert one["place"] == f"main.py:{one['line']}"
    assert one["message"].startswith("DDP702 what is shown would be of one rank's samples only.")
