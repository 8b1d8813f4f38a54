"""The fixture without a loader or an optimizer: `batchify`, carried states, steps by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify import cli
from tests.projects import put_fixture

pytestmark = [pytest.mark.training, pytest.mark.thorough]
ARGUMENTS = "--epochs=2 --emsize=16 --nhid=16 --batch_size=20 --log-interval=4".split()
NO_LOADER = {"samples", "contents", "evaluation", "learning-rates", "overfit"}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize(("model", "rate"), [("LSTM", "20"), ("GRU", "5"), ("Transformer", "5")])
def test_columns_on_four_ranks_learn_what_they_learn_in_one_process(
    model: str, rate: str, strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    script = put_fixture("language_model", folder)
    subprocess.run([sys.executable, "make_data.py"], cwd=folder, check=True, capture_output=True)
    for name, size in (("train", 40_000), ("valid", 5_000), ("test", 5_000)):
        text = folder / "data" / "pydoc" / f"{name}.txt"
        text.write_text(text.read_text()[:size])
    flags = ["--nproc=4", f"--strategy={strategy}", "--neutralise=dropout", "--json=-", "--"]
    arguments = [*ARGUMENTS, f"--model={model}", f"--lr={rate}"]
    assert cli.main(["verify", str(script), *flags, *arguments]) == cli.CLEAN
    report = json.loads(capsys.readouterr().out)
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    skipped = NO_LOADER | ({"probe"} if strategy == "fsdp" else set())  # of a whole model
    assert {name for name, verdict in verdicts.items() if verdict == "skipped"} == skipped
    assert verdicts["trajectory"] == verdicts["metrics"] == "pass"
