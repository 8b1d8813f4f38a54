"""Which files are read: named ones always, those of a folder unless something leaves them out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.checking.conftest import CLEAN, Check, Linter, write

BAD = "bad()\n"


def test_the_current_folder_is_the_default(project: Path, check: Check) -> None:
    write(project, {"b.py": BAD, "a.py": f"\n{BAD}", "pkg/deep/c.py": BAD, "notes.txt": BAD})
    said = check()
    assert said.places == ["a.py:2 DDP701", "b.py:1 DDP701", "pkg/deep/c.py:1 DDP701"]
    assert said.code == 1


def test_several_paths_each_file_once(project: Path, check: Check) -> None:
    write(project, {"a.py": BAD, "pkg/b.py": BAD, "c.py": BAD})
    assert check("pkg", "a.py", "pkg/b.py").places == ["a.py:1 DDP701", "pkg/b.py:1 DDP701"]


@pytest.mark.parametrize(
    "path",
    [
        ".venv/lib/a.py",
        "venv/a.py",
        "node_modules/a.py",
        "lib/site-packages/a.py",
        "build/a.py",
        ".hidden/a.py",
        "__pycache__/a.py",
    ],
)
def test_installed_and_hidden_files_are_left(project: Path, check: Check, path: str) -> None:
    write(project, {path: BAD, "main.py": CLEAN})
    assert check(".").places == []
    assert check(path).places == [f"{path}:1 DDP701"]  # named: read all the same


def test_an_environment_of_any_name_is_left(project: Path, check: Check) -> None:
    write(project, {"mine/pyvenv.cfg": "", "mine/lib/a.py": BAD, "main.py": CLEAN})
    assert check().places == []


IGNORES = {
    ".gitignore": "# generated\n/out/\n*_pb2.py\n!kept_pb2.py\n",
    "pkg/.gitignore": "local.py\n!again_pb2.py\n",
}
FILES = [
    "out/a.py",
    "pkg/out/a.py",
    "x_pb2.py",
    "kept_pb2.py",
    "pkg/local.py",
    "pkg/again_pb2.py",
    "pkg/sub/local.py",
    "pkg/sub/x_pb2.py",
    "local.py",
]


def test_gitignore_means_what_git_means(project: Path, check: Check) -> None:
    """Nested files, negations and anchors: git itself says what is ignored."""
    write(project, {**IGNORES, **dict.fromkeys(FILES, BAD)})
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    kept = sorted(listed.stdout.split())
    assert [place.split(":")[0] for place in check().places] == kept
    assert len(kept) < len(FILES)
    below = [path for path in kept if path.startswith("pkg/")]
    assert [place.split(":")[0] for place in check("pkg").places] == below


@pytest.mark.parametrize(
    "lines",
    [
        "*\n!*/\n!*.py\n",
        "data/**\n!data/keep.py\n",
        "data/**\n!data/**/\n!data/**/*.py\n",
        "data/*\n!data/sub/\n",
        "data/\n!data/keep.py\n",
        "/data/**/keep.py\n",
        "d?ta/[!k]*\n",
        "data/[[:alpha:]]*.py\n!data/[k-]eep.py\n",
        "keep.py  \n\\!x.py\n[b\ndata/sub//\n",
        "**/sub/\nmain*\n",
    ],
)
def test_patterns_name_the_paths_that_git_says(project: Path, check: Check, lines: str) -> None:
    """Above all that a pattern of what is in a folder is not about the folder itself."""
    names = "data/keep.py data/-eep.py data/sub/keep.py data/sub/x.py main.py !x.py".split()
    write(project, {".gitignore": lines, **dict.fromkeys(names, BAD)})
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    assert [place.split(":")[0] for place in check().places] == sorted(listed.stdout.split())


def test_a_folder_that_git_ignores_is_read_when_it_is_named(project: Path, check: Check) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    settings = '[tool.ddpify]\nexclude = ["old"]\n'
    write(project, {"pyproject.toml": settings, ".gitignore": "/data\n"})
    write(project, {"data/a.py": BAD, "old/a.py": BAD})
    assert check().places == []
    assert check("data", "old").places == ["data/a.py:1 DDP701", "old/a.py:1 DDP701"]


def test_git_info_exclude_counts(project: Path, check: Check) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / ".git" / "info" / "exclude").write_text("mine.py\n")
    write(project, {"mine.py": BAD, "a.py": BAD})
    assert check().places == ["a.py:1 DDP701"]


def test_a_pattern_that_git_would_pass_over_breaks_nothing(project: Path, check: Check) -> None:
    write(project, {".gitignore": "!\nb.py\n", "a.py": BAD, "b.py": BAD})
    assert check().places == ["a.py:1 DDP701"]


def test_exclude_of_the_settings(project: Path, check: Check) -> None:
    settings = '[tool.ddpify]\nexclude = ["legacy", "*_old.py"]\n'
    write(project, {"pyproject.toml": settings, "a.py": BAD, "a_old.py": BAD, "legacy/b.py": BAD})
    assert check().places == ["a.py:1 DDP701"]
    assert check("a_old.py").places == ["a_old.py:1 DDP701"]


def test_settings_of_a_folder_count_wherever_the_run_begins(project: Path, check: Check) -> None:
    """As its choice of rules does; a pyproject.toml without a word of ours changes nothing."""
    top = '[tool.ddpify]\nexclude = ["*_old.py", "/b/c.py"]\n'
    inner = '[tool.ddpify]\nexclude = ["legacy"]\n'
    write(project, {"pyproject.toml": top, "a/pyproject.toml": "", "b/pyproject.toml": inner})
    names = ["a/x.py", "a/x_old.py", "b/x_old.py", "b/c.py", "b/legacy/x.py"]
    write(project, dict.fromkeys(names, BAD))
    assert check("b").places == ["b/c.py:1 DDP701", "b/x_old.py:1 DDP701"]
    assert check().places == ["a/x.py:1 DDP701", *check("b").places]


def test_wrong_settings_matter_where_a_file_is_read(project: Path, check: Check) -> None:
    write(project, {"a.py": BAD, "samples/pyproject.toml": "{{ name }}\n"})
    assert check().places == ["a.py:1 DDP701"]
    write(project, {"samples/a.py": BAD})
    assert check().code == 2


@pytest.mark.parametrize("flags", [[], ["--force-exclude"]])
def test_force_exclude(project: Path, check: Check, flags: list[str]) -> None:
    settings = '[tool.ddpify]\nexclude = ["legacy", "*_old.py"]\n'
    names = ["a.py", "a_old.py", "legacy/b.py", "legacy/deep/c.py"]
    write(project, {"pyproject.toml": settings, **dict.fromkeys(names, BAD)})
    left = ["a.py:1 DDP701"] if flags else [f"{name}:1 DDP701" for name in names]
    assert check(*flags, *names).places == left
    assert bool(check(*flags, "legacy").places) is not bool(flags)
    assert bool(check(*flags, "legacy/deep").places) is not bool(flags)
    said = check(*flags, "-", "--stdin-filename", "legacy/b.py", stdin=BAD)
    assert bool(said.places) is not bool(flags)


def test_standard_input_that_is_excluded_is_given_back(project: Path, check: Check) -> None:
    settings = '[tool.ddpify]\nexclude = ["legacy"]\n'
    write(project, {"pyproject.toml": settings})
    flags = ["--fix", "--force-exclude", "--stdin-filename", "legacy/b.py"]
    said = check("-", *flags, stdin="slow()\n")
    assert (said.code, said.out) == (0, "slow()\n")


def test_files_are_grouped_by_project(project: Path, check: Check, linter: Linter) -> None:
    write(project, {"a.py": BAD, "other/setup.py": "", "other/b.py": BAD, "sub/c.py": BAD})
    assert len(check().places) == 3
    assert [call["files"] for call in linter.calls] == [
        ("a.py", "sub/c.py"),
        ("b.py", "setup.py"),
    ]


def test_requirements_within_a_project_make_no_other(
    project: Path, check: Check, linter: Linter
) -> None:
    write(project, {"a.py": BAD, "examples/requirements.txt": "", "examples/b.py": BAD})
    check()
    assert [call["files"] for call in linter.calls] == [("a.py", "examples/b.py")]


def test_files_are_named_from_the_current_folder(
    project: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the project's top is above it; what lies elsewhere is named from the top."""
    write(project, {"pkg/a.py": BAD, "pkg/sub/b.py": BAD, "c.py": BAD})
    monkeypatch.chdir(project / "pkg")
    assert check().places == ["a.py:1 DDP701", "sub/b.py:1 DDP701"]
    assert check("a.py", "../c.py").places == [f"{project}/c.py:1 DDP701", "a.py:1 DDP701"]
    for form in ("json", "sarif", "gitlab", "github", "junit"):
        assert str(project) not in check("--output-format", form).out.replace(
            project.joinpath("pkg").as_uri(), ""
        )


def test_services_are_told_where_a_file_is_in_the_repository(
    project: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"pkg/a.py": BAD})
    monkeypatch.chdir(project / "pkg")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project))
    monkeypatch.setenv("CI_PROJECT_DIR", str(project))
    assert ",file=pkg/a.py," in check("--output-format", "github").out
    assert '"path": "pkg/a.py"' in check("--output-format", "gitlab").out


def test_a_project_elsewhere_is_named_from_the_top(
    project: Path, check: Check, tmp_path: Path
) -> None:
    write(tmp_path, {"other/a.py": BAD})
    assert check("../other").places == [f"{tmp_path}/other/a.py:1 DDP701"]


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        pytest.param("missing.py", None, "missing.py: no such file or folder", id="missing"),
        pytest.param("data.csv", "1,2", "neither a Python file nor a launch script", id="csv"),
    ],
)
def test_what_cannot_be_read_is_an_error(
    project: Path, check: Check, path: str, text: str | None, sentence: str
) -> None:
    if text is not None:
        write(project, {path: text})
    said = check(path)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("ddpify: ")
    assert sentence in said.err


def test_what_is_neither_file_nor_folder_is_an_error(project: Path, check: Check) -> None:
    os.mkfifo(project / "pipe.py")
    (project / "loop.py").symlink_to("loop.py")
    write(project, {"a.py": BAD})
    for path, sentence in (
        ("pipe.py", "a pipe"),
        ("loop.py", "cannot be read"),
        ("a.py/b.py", "no"),
    ):
        for flags in ([], ["--force-exclude"]):
            said = check("a.py", path, *flags)
            assert (said.code, said.out) == (2, "")
            assert said.err.startswith(f"ddpify: {path}: {sentence}")
    assert check().places == ["a.py:1 DDP701"]


def test_what_is_nested_too_deeply_is_a_finding(project: Path, check: Check) -> None:
    write(project, {"a.py": f"x = {'-' * 50_000}1\n", "b.py": BAD})
    assert check().places == ["a.py:1 DDP000", "b.py:1 DDP701"]


def test_a_folder_without_python_files_is_fine(project: Path, check: Check) -> None:
    """It is said: perhaps a wrong folder was named. A file without findings is no such case."""
    said = check()
    assert (said.code, said.out) == (0, "No findings.\n")
    assert said.err == "ddpify: no Python file or launch script was there to be read\n"
    assert check("-q").err == ""
    write(project, {"a.py": CLEAN, ".hidden/b.py": BAD})
    assert check().err == ""


def test_a_file_that_cannot_be_parsed_is_one_finding_and_the_rest_go_on(
    project: Path, check: Check
) -> None:
    write(project, {"a.py": 'print "x"\n', "b.py": BAD, "c.py": "x = (\n"})
    said = check()
    assert said.places == ["a.py:1 DDP000", "b.py:1 DDP701", "c.py:1 DDP000"]
    assert said.code == 1


def test_a_script_without_a_suffix(project: Path, check: Check) -> None:
    write(project, {"train": f"#!/usr/bin/env python3\n{BAD}"})
    assert check("train").places == ["train:2 DDP701"]


@pytest.mark.parametrize("name", ["app.pyw", "app.wsgi", "app.tac", "tool.v2"])
def test_a_named_file_of_another_suffix(project: Path, check: Check, name: str) -> None:
    write(project, {name: f"#!/usr/bin/env python3\n{BAD}"})
    assert check(name).places == [f"{name}:2 DDP701"]
    assert check().places == []


def test_standard_input(project: Path, check: Check) -> None:
    said = check("-", stdin=f"x = 1\n{BAD}")
    assert (said.places, said.code) == (["stdin.py:2 DDP701"], 1)
    said = check("-", "--stdin-filename", "pkg/new.py", stdin=BAD)
    assert said.places == ["pkg/new.py:1 DDP701"]


def test_standard_input_stands_for_the_file_on_disk(project: Path, check: Check) -> None:
    write(project, {"a.py": BAD})
    said = check("-", "--stdin-filename", "a.py", "--show-source", stdin=f"# edited\n{BAD}")
    assert said.places == ["a.py:2 DDP701"]
    assert " 1 | # edited\n" in said.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["-", "a.py"], "excludes other paths", id="two-paths"),
        pytest.param(["a.py", "--stdin-filename", "b.py"], "needs - as the only path", id="name"),
        pytest.param(["-", "--add-noqa"], "cannot be used with -", id="noqa"),
    ],
)
def test_standard_input_alone(
    project: Path, check: Check, arguments: list[str], sentence: str
) -> None:
    said = check(*arguments)
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err
