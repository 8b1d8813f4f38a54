"""What programs read is described, and what is described stays what it was."""

from __future__ import annotations

import json

import jsonschema
import pytest

from ddpify import cli, schemas
from tests.schemas import published


@pytest.mark.parametrize("command", schemas.FILES)
def test_the_command_prints_a_schema(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", command]) == cli.CLEAN
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["title"].startswith("ddpify ")
    assert published.version(command) >= 1


def test_a_command_without_json_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "init"]) == cli.FAILED
    assert "'init' is not one of 'check'" in capsys.readouterr().err


@pytest.mark.parametrize("command", schemas.FILES)
def test_a_shape_changes_with_its_version_only(command: str) -> None:
    file, now = published.recorded(command), published.shape(command)
    name = f"ddpify/schemas/{schemas.FILES[command]}.schema.json"
    record = "record it: python -m tests.schemas.published"
    assert file.is_file(), f"{name} has a new version; {record}"
    before = file.read_text().splitlines()
    gone = sorted(set(before) - set(now))
    assert not gone, (
        f"{name} no longer has {gone}: programs that read version {published.version(command)} "
        "break; let `schema` grow there and in the report, then " + record
    )
    added = sorted(set(now) - set(before))
    assert not added, f"{name} has {added} besides, which is no new version; {record}"


def test_a_key_that_is_not_described_is_found() -> None:
    good = '{"schema": 1, "rules": []}'
    published.validate("statistics", good)
    for bad in (good.replace("1", "2"), good.replace("[]", "[3]"), '{"schema": 1}'):
        with pytest.raises(AssertionError, match=r"statistics\.schema\.json does not describe"):
            published.validate("statistics", bad)
    with pytest.raises(AssertionError, match="'more' was unexpected"):
        published.validate("statistics", '{"schema": 1, "rules": [], "more": 1}')
