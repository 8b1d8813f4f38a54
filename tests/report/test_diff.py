"""The diff is a valid patch, and every hunk says which rules asked for it and why."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ddpify.links import rule_page
from ddpify.plan import Change
from ddpify.report import diff, markdown
from ddpify.report.hunks import file_diff, file_diffs
from ddpify.rules.base import How
from tests.report.samples import AFTER, BEFORE, EDITS, HELPERS, MAIN, NEW, at, outcome, planned


def reasons(change: Change) -> list[list[str]]:
    """Rule ids per hunk."""
    return [[rule for rule, _ in hunk.reasons] for hunk in file_diff(change).hunks]


def test_hunks_name_the_rules_whose_edits_they_hold() -> None:
    assert reasons(MAIN)[1:] == [["D201", "D501"], ["D601"]]


def test_an_import_belongs_to_the_edits_that_needed_the_name() -> None:
    edits = (EDITS[0], planned(How.GATE, EDITS[1].edit.site, "D501", "prints", "g"), EDITS[2])
    first = file_diff(Change("main.py", MAIN.before, MAIN.after, edits)).hunks[0]
    assert first.reasons == (("D201", "imports the helpers of D201, D601"),)


@pytest.mark.parametrize(
    ("how", "first", "last", "hunk"),
    [
        pytest.param(How.BEFORE, 10, 40, 0, id="before-a-long-loop"),
        pytest.param(How.AFTER, 2, 31, 1, id="after-a-long-function"),
        pytest.param(How.REPLACE, 12, 12, 0, id="near-a-hunk-only"),
    ],
)
def test_an_edit_that_is_off_by_lines_goes_to_the_nearest_hunk(
    how: How, first: int, last: int, hunk: int
) -> None:
    old = [f"line {number}\n" for number in range(1, 41)]
    new = [*old[:9], "new\n", *old[9:31], "new\n", *old[31:]]
    edit = planned(how, at(first, last), "D999", "why")
    change = Change("main.py", "".join(old).encode(), "".join(new).encode(), (edit,))
    diffs = file_diff(change).hunks
    assert len(diffs) == 2
    assert edit in diffs[hunk].edits


def test_no_hunk_is_without_reason() -> None:
    old = [f"line {number}\n" for number in range(1, 41)]
    new = [*old[:5], "new\n", *old[5:35], "other\n", *old[35:]]
    edit = planned(How.BEFORE, at(6), "D999", "why")
    change = Change("main.py", "".join(old).encode(), "".join(new).encode(), (edit,))
    assert reasons(change) == [["D999"], ["D999"]]


def test_a_file_that_stays_as_it_is_is_not_in_the_diff(tmp_path: Path) -> None:
    same = Change("same.py", b"x = 1\n", b"x = 1\n", ())
    assert file_diffs(outcome(tmp_path, changes=(same,))) == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(BEFORE.encode(), AFTER.encode(), id="plain"),
        pytest.param(None, HELPERS.encode(), id="new-file"),
        pytest.param(b"a = 1\nb = 2", b"a = 1\nc = 3\nb = 2", id="no-final-newline"),
        pytest.param(b"a = 1\nb = 2", b"a = 1\nb = 2\n", id="final-newline-added"),
        pytest.param(b"a = 1\r\nb = 2\r\n", b"a = 1\r\nc = 3\r\nb = 2\r\n", id="crlf"),
        pytest.param(b"\xef\xbb\xbfa = 1\n", b"\xef\xbb\xbfa = 1\nb = 2\n", id="bom"),
        pytest.param("# ä\x0c\na = 1\n".encode(), "# ä\x0c\nb = 1\n".encode(), id="form-feed"),
    ],
)
@pytest.mark.parametrize("folder", ["", "deep/er"])
def test_git_applies_the_diff(
    tmp_path: Path, before: bytes | None, after: bytes, folder: str
) -> None:
    root = tmp_path / folder
    root.mkdir(parents=True, exist_ok=True)
    if before is not None:
        (root / "main.py").write_bytes(before)
    edit = planned(How.REPLACE, at(1), "D999", "because @@ it must")
    change = Change("main.py", before, after, (edit,))
    patch = diff.render(outcome(root, changes=(change,)), f"{folder}/" if folder else "")
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    command = ["git", "apply", "-"]
    subprocess.run(command, input=patch.encode(), cwd=tmp_path, env=outside, check=True)
    assert (root / "main.py").read_bytes() == after


def test_colour_puts_each_reason_on_its_own_line(tmp_path: Path) -> None:
    text = diff.render(outcome(tmp_path), color=True)
    assert "\x1b[32m+    set_epoch(loader, epoch)\x1b[0m\n" in text
    assert "D201\x1b[0m \x1b[3man epoch needs its own order\x1b[0m\n" in text
    assert "\x1b" not in diff.render(outcome(tmp_path))


def test_copies_of_the_helpers_come_last_and_may_be_folded(tmp_path: Path) -> None:
    """On a terminal nobody wants to read them; a patch has to hold them."""
    patch = diff.render(outcome(tmp_path), "src/")
    assert patch.index("+++ b/src/main.py") < patch.index("+++ b/src/ddp_utils.py")
    folded = diff.render(outcome(tmp_path), "src/", folded=True)
    assert folded.endswith("\n+ src/ddp_utils.py, 60 lines, not shown: --full\n")
    assert patch.startswith(folded[: folded.rindex("+ src/")])
    renewed = (replace(NEW, before=NEW.after.replace(b"helper_7()", b"helper_8()")),)
    folded = diff.render(outcome(tmp_path, changes=renewed), folded=True)
    assert folded == "~ ddp_utils.py, +1 -1 lines, not shown: --full\n"


def test_markdown_has_headings_fences_reasons_and_what_is_left(tmp_path: Path) -> None:
    text = markdown.render(outcome(tmp_path))
    assert text.startswith("## ddpify: `main.py` under torchrun, 2 files to change\n")
    new = "### `ddp_utils.py` (new)\n\n60 lines, not shown here.\n\n"
    assert f"{new}- [**D002**]({rule_page('D002')}) the helpers" in text
    assert "```diff\n@@ -1,5 +1,6 @@\n import torch\n" in text
    assert "+    set_epoch(loader, epoch)\n" in text
    epoch = f"- [**D201**]({rule_page('D201')}) an epoch needs its own order\n"
    assert f"{epoch}- [**D501**]({rule_page('D501')}) every rank prints\n" in text
    assert "- `main.py:20` D402 the loss is a sum over the batch. Divide it by" in text
    assert "- `main.py:7` D201, D501 both want this line" in text
    assert "- `main.py:9` the model comes from a registry" in text
    assert "def helper_1" not in text


def test_markdown_fences_are_longer_than_those_inside(tmp_path: Path) -> None:
    change = Change("main.py", b"x = 1\n", b'x = """\n```\n"""\n', ())
    text = markdown.render(outcome(tmp_path, changes=(change,)))
    assert text.count("````") == 2


def test_markdown_says_when_there_is_nothing_to_change(tmp_path: Path) -> None:
    text = markdown.render(outcome(tmp_path, changes=(), findings=(), clashes=(), notes=()))
    assert text == "## ddpify: nothing to change in `main.py`\n"
