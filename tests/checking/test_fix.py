"""--fix, --diff, --unsafe-fixes, --add-noqa: what they write, all of it or nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.checking.conftest import CLEAN, Check, write

MIXED = "slow()\nrisky()\nbad()\n"

READ = "No findings: 1 program read as several ranks run it.\n"


def test_fix_makes_the_safe_ones_and_prints_the_rest(project: Path, check: Check) -> None:
    write(project, {"main.py": MIXED, "pkg/b.py": "x = slow(1)\n"})
    said = check("--fix")
    assert (project / "main.py").read_text() == "fine()\nrisky()\nbad()\n"
    assert (project / "pkg/b.py").read_text() == "x = fine()\n"
    assert said.places == ["main.py:2 DDP601", "main.py:3 DDP701"]
    assert "Fixed 2 findings.\n" in said.out
    assert said.code == 1


def test_fix_of_everything_is_clean(project: Path, check: Check) -> None:
    write(project, {"main.py": "slow()\n"})
    said = check("--fix")
    assert (said.code, said.out) == (0, f"Fixed 1 finding.\n{READ}")
    assert check().out.startswith("No findings")


def test_unsafe_fixes_only_on_demand(project: Path, check: Check) -> None:
    write(project, {"main.py": MIXED})
    assert "1 fixable with --fix --unsafe-fixes.\n" in check().out
    assert "main.py:2:1: error DDP601 risky" in check().out  # no star: --fix leaves it
    said = check("--fix", "--unsafe-fixes")
    assert (project / "main.py").read_text() == "fine()\nfine()\nbad()\n"
    assert "Fixed 2 findings." in said.out


def test_only_chosen_rules_are_fixed(project: Path, check: Check) -> None:
    write(project, {"main.py": MIXED})
    check("--fix", "--unsafe-fixes", "--select", "DDP601")
    assert (project / "main.py").read_text() == "slow()\nfine()\nbad()\n"


@pytest.mark.parametrize("flags", [["--diff"], ["--fix", "--diff"]])
def test_diff_is_a_patch_and_writes_nothing(project: Path, check: Check, flags: list[str]) -> None:
    write(project, {"main.py": MIXED, "pkg/b.py": "slow()\n"})
    said = check(*flags)
    assert said.code == 1
    assert "-slow()\n+fine()\n" in said.out
    assert "DDP402 slow is called" in said.out
    assert "Would fix 2 of 4 findings." in said.err
    assert (project / "main.py").read_text() == MIXED
    subprocess.run(["git", "apply"], cwd=project, input=said.out, text=True, check=True)
    assert (project / "main.py").read_text() == "fine()\nrisky()\nbad()\n"
    assert (project / "pkg/b.py").read_text() == "fine()\n"


def test_a_diff_in_a_folder_of_the_project_is_a_patch_there(
    project: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"pkg/deep/b.py": "slow()\n", "pkg/a.py": "x = 1\n"})
    monkeypatch.chdir(project / "pkg")
    patch = check("--diff", "-q", "deep").out
    assert patch.startswith("--- a/deep/b.py\n+++ b/deep/b.py\n")
    subprocess.run(["git", "apply"], cwd=project / "pkg", input=patch, text=True, check=True)
    assert (project / "pkg/deep/b.py").read_text() == "fine()\n"


def test_diff_of_nothing(project: Path, check: Check) -> None:
    write(project, {"main.py": "bad()\n"})
    said = check("--diff")
    assert (said.code, said.out) == (0, "")


def test_a_file_that_cannot_be_written_leaves_all_as_they_were(project: Path, check: Check) -> None:
    write(project, {"a.py": "slow()\n", "b.py": "slow()\n"})
    (project / "b.py").chmod(0o444)
    said = check("--fix")
    assert (said.code, said.out) == (2, "")
    assert "b.py: is read-only" in said.err
    assert (project / "a.py").read_text() == "slow()\n"


def test_a_file_that_cannot_be_rewritten_is_named_and_the_others_are_fixed(
    project: Path, check: Check
) -> None:
    """libcst gives back other bytes than it was given: nothing may be written there."""
    (project / "a.py").write_bytes(b"slow()\r\nx = '''\r'''\n")
    write(project, {"b.py": "slow()\n"})
    said = check("--fix")
    assert (project / "b.py").read_text() == "fine()\n"
    fixed = (project / "a.py").read_bytes() == b"fine()\r\nx = '''\r'''\n"
    assert fixed or "a.py: cannot be rewritten" in said.err


def test_fix_of_standard_input_prints_the_new_text(project: Path, check: Check) -> None:
    said = check("--fix", "-", "--stdin-filename", "a.py", stdin=MIXED)
    assert said.out == "fine()\nrisky()\nbad()\n"
    assert "a.py:2:1: error DDP601" in said.err
    assert "Fixed 1 finding." in said.err
    assert said.code == 1
    assert not (project / "a.py").exists()


def test_fix_of_clean_standard_input_prints_it_as_it_was(project: Path, check: Check) -> None:
    said = check("--fix", "-", stdin=CLEAN)
    assert (said.code, said.out) == (0, CLEAN)


def test_diff_of_standard_input(project: Path, check: Check) -> None:
    said = check("--diff", "-", "--stdin-filename", "a.py", stdin="slow()\n")
    assert "--- a/a.py\n+++ b/a.py\n" in said.out
    assert "+fine()\n" in said.out


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x = 1  # noqa: DDP701\n", "x = 1\n", id="goes"),
        pytest.param("x = 1  # ddpify: ignore\n", "x = 1\n", id="bare"),
        pytest.param("x = 1  # noqa: F401, DDP701\n", "x = 1  # noqa: F401\n", id="one-code"),
        pytest.param("bad()  # noqa: DDP402,DDP701\n", "bad()  # noqa: DDP701\n", id="another"),
        pytest.param(
            "bad()  # ddpify: ignore[DDP402, DDP701]\n",
            "bad()  # ddpify: ignore[DDP701]\n",
            id="ours",
        ),
        pytest.param("x = 1  # noqa: DDP701 why\n", "x = 1  # why\n", id="with-a-reason"),
        pytest.param("x = 1  # ddpify: ignore[]\n", "x = 1\n", id="empty"),
        pytest.param("x = 1  # ddpify: ignore: DDP701\n", "x = 1\n", id="colon"),
        pytest.param(
            "x = 1  # ddpify: ignored, why\n", "x = 1  # ddpify: ignored, why\n", id="odd"
        ),
        pytest.param(
            "bad()  # ddpify: ignore-file[DDP402,DDP7]\n",
            "bad()  # ddpify: ignore-file[DDP7]\n",
            id="file",
        ),
        pytest.param("x = 1  # noqa: DDP701  # why\n", "x = 1  # why\n", id="with-a-comment"),
        pytest.param("x = 1  # why  # noqa: DDP701\n", "x = 1  # why\n", id="behind-a-comment"),
        pytest.param(
            "x = 1  # noqa: DDP701  # ddpify: ignore[DDP402]\n", "x = 1\n", id="two-comments"
        ),
        pytest.param("slow()  # noqa: DDP701\n", "fine()\n", id="with-another-fix"),
        pytest.param("# noqa: DDP701\nx = 1\n", "# noqa: DDP701\nx = 1\n", id="line-of-its-own"),
        pytest.param("x = 'ä'  # noqa: DDP701\r\n", "x = 'ä'\r\n", id="bytes-and-line-ends"),
    ],
)
def test_unused_comments_are_removed(project: Path, check: Check, before: str, after: str) -> None:
    (project / "main.py").write_bytes(before.encode())
    check("--fix")
    assert (project / "main.py").read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("bad()\n", "bad()  # noqa: DDP701\n", id="new"),
        pytest.param("bad(); slow()\n", "bad(); slow()  # noqa: DDP402, DDP701\n", id="two"),
        pytest.param("bad()  # noqa: F401\n", "bad()  # noqa: F401, DDP701\n", id="existing"),
        pytest.param("bad()  # why\n", "bad()  # why  # noqa: DDP701\n", id="comment"),
        pytest.param("x = [\n    bad(),\n]\n", "x = [\n    bad(),  # noqa: DDP701\n]\n", id="list"),
        pytest.param("y = bad('''\n''')\n", "y = bad('''\n''')  # noqa: DDP701\n", id="long-text"),
        pytest.param("y = \\\n  bad()\n", "y = \\\n  bad()  # noqa: DDP701\n", id="second-line"),
        pytest.param("y = bad() + \\\n  1\n", "y = bad() + \\\n  1  # noqa: DDP701\n", id="slash"),
        pytest.param("bad()", "bad()  # noqa: DDP701", id="no-line-end"),
        pytest.param("bad()\r\nx = 1\r\n", "bad()  # noqa: DDP701\r\nx = 1\r\n", id="crlf"),
        pytest.param("bad()  # noqa\n", "bad()  # noqa\n", id="silent-already"),
        pytest.param(
            'bad("see # noqa: E501", 1)\n',
            'bad("see # noqa: E501", 1)  # noqa: DDP701\n',
            id="in-a-text",
        ),
        pytest.param(
            'bad("# noqa: E501")  # NOQA : F401 why\n',
            'bad("# noqa: E501")  # NOQA : F401, DDP701 why\n',
            id="in-a-text-and-a-comment",
        ),
        pytest.param(
            "bad('''\n# noqa: E501''', [\n  1,  # noqa: F401\n])\n",
            "bad('''\n# noqa: E501''', [  # noqa: DDP701\n  1,  # noqa: F401\n])\n",
            id="in-a-long-text",
        ),
    ],
)
def test_add_noqa(project: Path, check: Check, before: str, after: str) -> None:
    (project / "main.py").write_bytes(before.encode())
    said = check("--add-noqa")
    assert said.code == 0
    assert (project / "main.py").read_bytes() == after.encode()
    assert check().places == []
    assert said.out == f"Wrote {int(before != after)} noqa comment{'s' * (before == after)}.\n"


def test_add_noqa_names_what_has_no_line_for_it(project: Path, check: Check) -> None:
    write(project, {"a.py": "print 1\n", "b.py": "bad()\n"})
    said = check("--add-noqa")
    assert "a.py:1: DDP000 has no line" in said.err
    assert check().places == ["a.py:1 DDP000"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        pytest.param(["--diff", "--add-noqa"], "--add-noqa and --diff exclude", id="diff"),
        pytest.param(["--fix", "--add-noqa"], "--add-noqa and --fix exclude", id="fix"),
        pytest.param(["--add-noqa", "--statistics"], "exclude each other", id="noqa-statistics"),
        pytest.param(["--diff", "--statistics"], "exclude each other", id="diff-statistics"),
        pytest.param(["--statistics", "--format", "sarif"], "no form for sarif", id="sarif"),
        pytest.param(["--statistics", "--format", "github"], "no form for github", id="github"),
    ],
)
def test_flags_that_exclude_each_other_are_an_error(
    project: Path, check: Check, flags: list[str], why: str
) -> None:
    write(project, {"main.py": MIXED})
    said = check(*flags)
    assert (said.code, said.out) == (2, "")
    assert why in said.err
    assert (project / "main.py").read_text() == MIXED


@pytest.mark.parametrize("form", ["text", "concise", "json"])
def test_statistics_have_these_forms(project: Path, check: Check, form: str) -> None:
    write(project, {"main.py": MIXED})
    assert check("--statistics", "--output-format", form).code == 1


LAUNCH = "python -m torch.distributed.launch"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(f"{LAUNCH} a.py\n", f"{LAUNCH} a.py  # noqa: DDP003\n", id="line"),
        pytest.param(
            f"{LAUNCH} \\\n  --nproc_per_node 2 \\\n  a.py\necho\n",
            f"{LAUNCH} \\\n  --nproc_per_node 2 \\\n  a.py  # noqa: DDP003\necho\n",
            id="several",
        ),
        pytest.param(
            f"{LAUNCH} \\\r\n a.py  # why\r\n",
            f"{LAUNCH} \\\r\n a.py  # why  # noqa: DDP003\r\n",
            id="crlf",
        ),
        pytest.param(f"{LAUNCH} a.py # noqa: X1", f"{LAUNCH} a.py # noqa: X1, DDP003", id="more"),
        pytest.param(
            f"{LAUNCH} a.py '# noqa: X1'\n",
            f"{LAUNCH} a.py '# noqa: X1'  # noqa: DDP003\n",
            id="in-a-text",
        ),
        pytest.param(
            f"# all \\\n{LAUNCH} a.py\n",
            f"# all \\\n{LAUNCH} a.py  # noqa: DDP003\n",
            id="a-comment-goes-no-further",
        ),
    ],
)
@pytest.mark.parametrize("head", ["", "#!/bin/bash\n# \xe4\n"])
def test_add_noqa_in_shell_scripts(
    project: Path, check: Check, head: str, before: str, after: str
) -> None:
    name = "run" if head else "run.sh"
    (project / name).write_bytes((head + before).encode("latin-1"))
    line = (head + before[: before.index(LAUNCH)]).count("\n") + 1
    assert check(name).places == [f"{name}:{line} DDP003"]
    assert check(name, "--add-noqa").out == "Wrote 1 noqa comment.\n"
    assert (project / name).read_bytes() == (head + after).encode("latin-1")
    assert check(name).places == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("run.sh", f'{LAUNCH} a.py "x\ny" b\n', id="ends-in-a-text"),
        pytest.param("Makefile", f"all:\n\t{LAUNCH} a.py\n", id="makefile"),
        pytest.param("README.md", f"```bash\n{LAUNCH} a.py\n```\n", id="markdown"),
    ],
)
def test_add_noqa_leaves_other_launchers_to_the_user(
    project: Path, check: Check, name: str, text: str
) -> None:
    write(project, {name: text})
    said = check("--add-noqa")
    assert said.out == "Wrote 0 noqa comments.\n"
    assert f"{name}:{text[: text.index(LAUNCH)].count(chr(10)) + 1}: no comment" in said.err
    assert (project / name).read_text() == text


def test_add_noqa_in_a_script_without_a_suffix(project: Path, check: Check) -> None:
    write(project, {"train": "#!/usr/bin/env python\nbad()\n"})
    assert check("train", "--add-noqa").out == "Wrote 1 noqa comment.\n"
    assert (project / "train").read_text() == "#!/usr/bin/env python\nbad()  # noqa: DDP701\n"
