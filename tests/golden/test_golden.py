"""What `ddpify diff` prints for the fixtures, as a reviewer approved it.

After a change that is meant: `make golden`, and read the difference in git before you commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.report import diff
from ddpify.settings import Settings
from tests.projects import put_fixture

HERE = Path(__file__).parent
FIXTURES = {
    "classification": "classification",
    "classification_dataparallel": "classification_dataparallel",
    "vision_project": "vision-segmentation",
    "gan": "gan",
    "vae": "vae",
    "trainer_class": "trainer_class",
    "text_classification": "text_classification",
    "language_model": "language_model",
    "toy_ladder": "ladder-full",
    "ct_volumes": "ct_volumes",
}
SHARDED = ("text_classification", "vision_project")  # with --strategy fsdp, too
FILE = re.compile(r"^(?=--- .*\n\+\+\+ )", re.MULTILINE)


@pytest.mark.parametrize("name", FIXTURES)
def test_the_diff_is_the_approved_one(name: str, tmp_path: Path) -> None:
    entry = put_fixture(FIXTURES[name], tmp_path / name)
    whole = name == "vision_project"  # its three scripts at once
    found = shown(tmp_path / name if whole else entry, Settings())
    golden = HERE / f"{name}.diff"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(found)
    assert found == golden.read_text(), "if it is meant: make golden"


@pytest.mark.parametrize("name", SHARDED)
def test_the_diff_that_shards_is_the_approved_one(name: str, tmp_path: Path) -> None:
    entry = put_fixture(FIXTURES[name], tmp_path / name)
    found = shown(entry, Settings(strategy="fsdp"))
    golden = HERE / f"{name}.fsdp.diff"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(found)
    assert found == golden.read_text(), "if it is meant: make golden"


def shown(project: Path, settings: Settings) -> str:
    """The diff of every file but the copy of the helpers, which is from runtime/."""
    outcome = migrate([project], settings)
    assert not outcome.refusals, [refusal.message for refusal in outcome.refusals]
    files = FILE.split(diff.render(outcome, ""))
    return "".join(text for text in files if not text.startswith("--- /dev/null\n"))
