"""Every fixture, migrated by ddpify, is verified green through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddpify import cli
from tests.projects import put_fixture

pytestmark = pytest.mark.training
SHORT = ("--epochs=2", "--lr-step=1", "--width=8", "--output-dir=out")


@pytest.mark.parametrize(
    ("folder", "flags", "arguments"),
    [
        pytest.param(
            "classification",
            ["--neutralise=all"],
            [*SHORT, "--dropout=0.2", "--clip-grad=1"],
            id="classification-neutral",
        ),
        pytest.param(
            "classification",
            ["--dtype=float32", "--nproc=4", "--steps=20"],
            [*SHORT, "--norm=none"],
            id="classification-float32-on-4",
        ),
        pytest.param(
            "classification_dataparallel",
            [],
            ["--epochs=2", "--arch=mlp", "--manualSeed=1", "--outdir=out"],
            id="dataparallel",
        ),
        pytest.param(
            "classification_dataparallel",
            ["--neutralise=batchnorm"],
            ["--epochs=2", "--arch=cnn_bn", "--manualSeed=1", "--outdir=out"],
            id="dataparallel-batchnorm",
        ),
    ],
)
def test_a_migrated_fixture_trains_the_same_model(
    folder: str,
    flags: list[str],
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = put_fixture(folder, tmp_path / "project")
    before = contents(tmp_path)
    code = cli.main(["verify", str(script), *flags, "--json=-", "--", *arguments])
    said = capsys.readouterr()
    assert code == cli.CLEAN, said.out + said.err
    assert contents(tmp_path) == before, "the user's files are not touched"
    report = json.loads(said.out)
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    wanted = ["completed", "samples", "gradients", "trajectory", "ranks-identical", "metrics"]
    assert {name: verdicts[name] for name in wanted} == dict.fromkeys(wanted, "pass"), report
    assert set(verdicts.values()) <= {"pass", "info", "skipped"}
    assert report["causes"] == []


def contents(folder: Path) -> dict[str, Any]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
