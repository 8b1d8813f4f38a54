"""The cache: a second run loads neither rules nor parsers, and never says anything stale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify.checking import cache
from tests.checking.conftest import CLEAN, Check, Linter, write

BAD = "bad()\n"


@pytest.fixture
def read_once(project: Path, check: Check, linter: Linter) -> Linter:
    """A project that was checked once; the calls of the linter from then on."""
    write(project, {"a.py": BAD, "pkg/b.py": BAD, "run.sh": "python a.py\n"})
    assert len(check().places) == 2
    linter.calls.clear()
    return linter


def test_the_second_run_says_the_same_without_reading(
    project: Path, check: Check, read_once: Linter
) -> None:
    plain = check("--no-cache")
    read_once.calls.clear()
    assert check() == plain
    assert read_once.calls == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"a.py": "x = 1\n" + BAD}, id="a-file"),
        pytest.param({"new.py": BAD}, id="a-new-file"),
        pytest.param({"run.sh": "python -u a.py\n"}, id="a-launcher"),
        pytest.param({".gitignore": "a.py\n"}, id="what-is-ignored"),
    ],
)
def test_any_change_is_seen(
    project: Path, check: Check, read_once: Linter, change: dict[str, str]
) -> None:
    write(project, change)
    check()
    assert len(read_once.calls) == 1


def test_a_change_of_the_same_length_at_the_same_time_is_seen(
    project: Path, check: Check, read_once: Linter
) -> None:
    file = project / "a.py"
    before = file.stat()
    file.write_text("low()\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert check().places == ["pkg/b.py:1 DDP701"]


@pytest.mark.parametrize("flags", [["--assume-distributed"], ["a.py"]])
def test_another_choice_is_another_answer(
    project: Path, check: Check, read_once: Linter, flags: list[str]
) -> None:
    check(*flags)
    assert len(read_once.calls) == 1
    check(*flags)
    check()
    assert len(read_once.calls) == 1


@pytest.mark.parametrize(
    ("flags", "settings", "left"),
    [
        pytest.param(["--select", "DDP5"], "", [], id="select"),
        pytest.param(["--ignore", "DDP7"], "", [], id="ignore"),
        pytest.param([], 'ignore = ["DDP7"]', [], id="settings"),
        pytest.param([], 'per-file-ignores = {"pkg" = ["DDP"]}', ["a.py:1 DDP701"], id="per-file"),
    ],
)
def test_the_choice_of_rules_is_made_in_what_was_found(
    project: Path, check: Check, read_once: Linter, flags: list[str], settings: str, left: list[str]
) -> None:
    """What took minutes is not read again to leave something out; nor to have it back."""
    write(project, {"pyproject.toml": f"[tool.ddpify]\n{settings}\n"})
    assert check(*flags).places == left
    write(project, {"pyproject.toml": ""})
    assert len(check().places) == 2
    assert read_once.calls == []


def test_a_choice_is_cached_whole(project: Path, check: Check, linter: Linter) -> None:
    """Also the first run may have been about a few rules."""
    write(project, {"a.py": "bad()\nslow()  # noqa: DDP4\n"})
    assert check("--select", "DDP5").places == []
    assert check("--select", "DDP4,DDP0").places == []
    assert check().places == ["a.py:1 DDP701"]
    assert len(linter.calls) == 1


def test_a_module_that_was_not_named_counts(project: Path, check: Check, linter: Linter) -> None:
    """What a script imports decides what is said of it."""
    write(project, {"a.py": BAD, "helpers.py": CLEAN})
    check("a.py")
    check("a.py")
    assert len(linter.calls) == 1
    write(project, {"helpers.py": CLEAN + CLEAN})
    check("a.py")
    write(project, {"more.py": CLEAN})
    check("a.py")
    assert len(linter.calls) == 3


def test_no_cache_neither_reads_nor_writes(project: Path, check: Check, linter: Linter) -> None:
    write(project, {"a.py": BAD})
    check("--no-cache")
    assert not (project / cache.FOLDER).exists()
    check()
    check("--no-cache")
    assert len(linter.calls) == 3


def test_the_folder_is_hidden_from_git(project: Path, check: Check, read_once: Linter) -> None:
    folder = project / cache.FOLDER
    assert (folder / ".gitignore").read_text().endswith("*\n")
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f0688")


def test_another_folder(project: Path, check: Check, tmp_path: Path, linter: Linter) -> None:
    write(project, {"a.py": BAD})
    check("--cache-dir", str(tmp_path / "mine"))
    check("--cache-dir", str(tmp_path / "mine"))
    assert not (project / cache.FOLDER).exists()
    assert len(linter.calls) == 1


def test_a_folder_that_was_there_is_not_hidden(project: Path, check: Check) -> None:
    (project / "here").mkdir()
    check("--cache-dir", "here")
    assert not (project / "here" / ".gitignore").exists()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: "", id="empty"),
        pytest.param(lambda data: "{", id="cut"),
        pytest.param(lambda data: "[]", id="a-list"),
        pytest.param(lambda data: json.dumps({**data, "findings": [[1]]}), id="finding"),
        pytest.param(lambda data: json.dumps({**data, "findings": None}), id="no-findings"),
        pytest.param(lambda data: json.dumps({**data, "rules": {"DDP701": 3}}), id="rules"),
        pytest.param(
            lambda data: json.dumps(
                {**data, "findings": [[*data["findings"][0][:3], "fatal", [], "", []]]}
            ),
            id="severity",
        ),
    ],
)
def test_a_damaged_entry_is_none(
    project: Path, check: Check, read_once: Linter, damage: object
) -> None:
    (entry,) = (project / cache.FOLDER).rglob("*.json")
    entry.write_text(damage(json.loads(entry.read_text())))  # type: ignore[operator]
    said = check()
    assert len(said.places) == 2
    assert said.err == ""
    assert len(read_once.calls) == 1
    check()
    assert len(read_once.calls) == 1  # it was written anew


def test_where_nothing_can_be_written_nothing_is_said(
    project: Path, check: Check, linter: Linter
) -> None:
    write(project, {"a.py": BAD, cache.FOLDER: "a file, not a folder"})
    assert check().err == check().err == ""
    assert len(linter.calls) == 2


def test_the_oldest_answers_go(
    project: Path, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(cache, "_MOST", 3)
    for number in range(6):
        write(project, {f"f{number}.py": BAD})
        check(f"f{number}.py")
    assert len(list((project / cache.FOLDER).rglob("*.json"))) == 3


def test_fixes_come_out_of_the_cache_whole(project: Path, check: Check, linter: Linter) -> None:
    write(project, {"a.py": "slow()\n"})
    check()
    check("--fix")
    assert (project / "a.py").read_text() == "fine()\n"
    assert len(linter.calls) == 2  # once before, once after the fix


HEAVY = ("black", "libcst", "markdown_it", "torch", "tree_sitter")
PROGRAM = f"""
import sys
from ddpify.cli import main
code = main(["check", *sys.argv[1:]])
ours = ("ddpify.facts", "ddpify.ranks", "ddpify.lint", "ddpify.launchers", "ddpify.rewrite")
light = {{"ddpify.rules", "ddpify.rules.base"}}
loaded = set(sys.modules) & set({HEAVY!r})
loaded |= {{name for name in sys.modules if name.startswith((*ours, "ddpify.rules"))}} - light
print("loaded:", sorted(loaded))
sys.exit(code)
"""
SCRIPT = """\
import torch.distributed as dist

dist.init_process_group("gloo")
dist.destroy_process_group()  # noqa: DDP102
"""


def run(folder: Path, *arguments: str) -> str:
    """``ddpify check`` in a process of its own, with the real linter."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("flags", [[], ["--output-format", "concise"], ["--output-format", "json"]])
def test_an_unchanged_project_loads_nothing_heavy(tmp_path: Path, flags: list[str]) -> None:
    write(tmp_path, {"pyproject.toml": "", "main.py": SCRIPT, "run.sh": "torchrun main.py\n"})
    first = run(tmp_path, *flags)
    second = run(tmp_path, *flags)
    assert second.endswith("loaded: []\n")
    assert second.partition("loaded:")[0] == first.partition("loaded:")[0]


def test_a_first_run_loads_neither_torch_nor_libcst(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "", "main.py": SCRIPT})
    loaded = run(tmp_path).rpartition("loaded:")[2]
    assert "ddpify.lint" in loaded
    assert not any(f"'{name}'" in loaded for name in ("black", "libcst", "torch"))


def test_a_change_of_an_imported_file_that_git_ignores_is_seen(tmp_path: Path) -> None:
    """Only files that are not ignored are looked for; what they import is read all the same."""
    write(
        tmp_path,
        {
            "pyproject.toml": "",
            ".gitignore": "made/\n",
            "main.py": "import torch.distributed as dist\n"
            "from made.help import ready\n\n"
            'dist.init_process_group("gloo")\n'
            "if ready(dist.get_rank()):\n"
            "    dist.barrier()\n"
            "dist.destroy_process_group()\n",
            "made/__init__.py": "",
            "made/help.py": "def ready(rank):\n    return rank == 0\n",
        },
    )
    assert _codes(tmp_path) == ["DDP801"]
    write(tmp_path, {"made/help.py": "def ready(rank):\n    return rank < 9\n"})
    assert _codes(tmp_path) == []


def _codes(folder: Path, *flags: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ddpify", "check", ".", "--output-format", "json", *flags],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return [one["rule"] for one in json.loads(done.stdout)["findings"]]
