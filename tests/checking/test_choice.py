"""Which findings count: codes, prefixes, settings, comments; and the exit code that follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.checking.codes import chosen
from ddpify.checking.model import CheckRequest
from ddpify.settings import Settings
from tests.checking.conftest import CLEAN, Check, Linter, write

ALL = "bad()\nslow()\nrisky()\nnoisy()\n"
CODES = {1: "DDP701", 2: "DDP402", 3: "DDP601", 4: "DDP501"}


@pytest.mark.parametrize(
    ("settings", "flags", "lines"),
    [
        pytest.param("", [], [1, 2, 3, 4], id="all"),
        pytest.param("", ["--select", "DDP7"], [1], id="prefix"),
        pytest.param("", ["--select", "ddp701,DDP402"], [1, 2], id="comma-and-case"),
        pytest.param("", ["--select", "DDP7", "--select", "DDP4"], [1, 2], id="repeated"),
        pytest.param("", ["--ignore", "DDP7,DDP5"], [2, 3], id="ignore"),
        pytest.param("", ["--select", "DDP", "--ignore", "DDP6"], [1, 2, 4], id="both"),
        pytest.param("", ["--select", "DDP601", "--ignore", "DDP6"], [3], id="longer-wins"),
        pytest.param("", ["--select", "ALL"], [1, 2, 3, 4], id="ALL"),
        pytest.param('select = ["DDP7"]', [], [1], id="settings"),
        pytest.param('select = ["DDP7"]', ["--select", "DDP4"], [2], id="flag-replaces"),
        pytest.param('select = ["DDP7"]', ["--extend-select", "DDP4"], [1, 2], id="extended"),
        pytest.param('ignore = ["DDP7"]', ["--ignore", "DDP4"], [3, 4], id="ignore-adds"),
        pytest.param('ignore = ["DDP7"]', ["--select", "DDP7"], [1], id="select-resets"),
        pytest.param('select = ["DDP701"]', ["--ignore", "DDP7"], [], id="flags-last-ignore"),
        pytest.param('ignore = ["DDP701"]', ["--extend-select", "DDP7"], [1, 2, 3, 4], id="extend"),
        pytest.param(
            'extend-select = ["DDP701"]', ["--ignore", "DDP"], [], id="flags-ignore-everything"
        ),
        pytest.param(
            'select = ["DDP7", "DDP4"]\nignore = ["DDP402"]', ["--ignore", "DDP6"], [1], id="kept"
        ),
        pytest.param(
            'select = ["DDP7"]\nextend-select = ["DDP5"]', [], [1, 4], id="extend-in-settings"
        ),
        pytest.param('per-file-ignores = {"main.py" = ["DDP7"]}', [], [2, 3, 4], id="per-file"),
        pytest.param('per-file-ignores = {"*.py" = ["DDP7", "DDP4"]}', [], [3, 4], id="pattern"),
        pytest.param('per-file-ignores = {"tests/*" = ["DDP7"]}', [], [1, 2, 3, 4], id="other"),
    ],
)
def test_which_rules(
    project: Path, check: Check, settings: str, flags: list[str], lines: list[int]
) -> None:
    write(project, {"pyproject.toml": f"[tool.ddpify]\n{settings}\n", "main.py": ALL})
    assert check(*flags, "main.py").places == [f"main.py:{n} {CODES[n]}" for n in lines]


@pytest.mark.parametrize(
    ("settings", "flags", "said"),
    [
        pytest.param("", ["--select", "DDP7"], True, id="flag"),
        pytest.param('select = ["DDP7"]', [], True, id="settings"),
        pytest.param("", ["--select", "DDP7", "--ignore", "DDP0"], False, id="ignored"),
        pytest.param('ignore = ["DDP000"]', ["--select", "DDP7"], False, id="ignored-in-settings"),
        pytest.param('ignore = ["DDP000"]', ["--select", "DDP0"], True, id="wanted-again"),
    ],
)
def test_a_file_that_cannot_be_read_is_said_whatever_is_selected(
    project: Path, check: Check, settings: str, flags: list[str], said: bool
) -> None:
    write(project, {"pyproject.toml": f"[tool.ddpify]\n{settings}\n", "main.py": "x = (\n"})
    assert check(*flags).places == (["main.py:1 DDP000"] if said else [])


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        pytest.param("./a.py", ["pkg/a.py", "pkg/b.py"], id="dot"),
        pytest.param("{pkg,lib}/*.py", ["a.py"], id="braces"),
        pytest.param("{,pkg/}{a,c}.py", ["pkg/b.py"], id="several-braces"),
        pytest.param("HERE/pkg/a.py", ["a.py", "pkg/b.py"], id="absolute"),
        pytest.param("pkg", ["a.py"], id="folder"),
        pytest.param("/a.py", ["pkg/a.py", "pkg/b.py"], id="from-the-top"),
    ],
)
def test_patterns_of_the_settings(
    project: Path, check: Check, pattern: str, kept: list[str]
) -> None:
    write(project, dict.fromkeys(("a.py", "pkg/a.py", "pkg/b.py"), "bad()\n"))
    pattern = pattern.replace("HERE", str(project))
    for settings in (f'per-file-ignores = {{"{pattern}" = ["DDP7"]}}', f'exclude = ["{pattern}"]'):
        write(project, {"pyproject.toml": f"[tool.ddpify]\n{settings}\n"})
        assert check(".").places == [f"{name}:1 DDP701" for name in kept]


@pytest.mark.parametrize(
    "pattern", ["!pkg/*", "!", "../a.py", "a//b", "[a", " ", "#a", "a/./b", "/"]
)
def test_a_pattern_that_matches_nothing_is_an_error(
    project: Path, check: Check, pattern: str
) -> None:
    write(project, {"a.py": "bad()\n"})
    for settings in (f'per-file-ignores = {{"{pattern}" = ["DDP7"]}}', f'exclude = ["{pattern}"]'):
        write(project, {"pyproject.toml": f"[tool.ddpify]\n{settings}\n"})
        said = check(".")
        assert (said.code, said.out) == (2, "")
        assert f"pyproject.toml: no file matches {pattern!r} (patterns are" in said.err


def test_per_file_ignores_begin_at_the_pyproject(project: Path, check: Check) -> None:
    settings = '[tool.ddpify]\nper-file-ignores = {"tests/*" = ["DDP7"]}\n'
    write(project, {"pyproject.toml": settings, "tests/a.py": "bad()\n", "a.py": "bad()\n"})
    assert check("tests", "a.py").places == ["a.py:1 DDP701"]


@pytest.mark.parametrize(
    ("flags", "settings", "hint"),
    [
        pytest.param(["--select", "DDP999"], "", "no rule has", id="select"),
        pytest.param(["--ignore", "E501"], "", "'E501'; `ddpify rule --all`", id="ignore"),
        pytest.param(["--extend-select", "DDP70X"], "", "near: ", id="extend"),
        pytest.param([], 'select = ["DDP7777"]', "'DDP7777'", id="settings"),
        pytest.param([], 'per-file-ignores = {"a" = ["X1"]}', "'X1'", id="per-file"),
    ],
)
def test_an_unknown_code_is_an_error(
    project: Path, check: Check, flags: list[str], settings: str, hint: str
) -> None:
    write(project, {"pyproject.toml": f"[tool.ddpify]\n{settings}\n", "main.py": ALL})
    said = check(*flags)
    assert (said.code, said.out) == (2, "")
    assert "no rule has a code that begins with" in said.err
    assert hint in said.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param(["--select", ""], "--select has no code", id="select"),
        pytest.param(["--select", " , "], "--select has no code", id="select-commas"),
        pytest.param(["--extend-select", ""], "--extend-select has no code", id="extend"),
        pytest.param(["--ignore", ""], "--ignore has no code", id="ignore"),
        pytest.param([""], "a path is empty", id="path"),
        pytest.param(["main.py", ""], "a path is empty", id="second-path"),
    ],
)
def test_what_is_given_empty_is_an_error(
    project: Path, check: Check, arguments: list[str], why: str
) -> None:
    """Most often it is a variable of a script that is not set; all is not what it stands for."""
    write(project, {"main.py": ALL})
    said = check(*arguments)
    assert (said.code, said.out) == (2, "")
    assert why in said.err


def test_a_wrong_setting_is_an_error(project: Path, check: Check) -> None:
    write(project, {"pyproject.toml": "[tool.ddpify]\nper-file-ignores = 3\n", "main.py": ALL})
    said = check()
    assert said.code == 2
    assert "per-file-ignores must be a table of file patterns" in said.err


@pytest.mark.parametrize(
    ("text", "flags", "code"),
    [
        pytest.param(CLEAN, [], 0, id="nothing"),
        pytest.param("noisy()\n", [], 0, id="notes-only"),
        pytest.param("noisy()\nslow()\n", [], 1, id="a-warning"),
        pytest.param("bad()\n", [], 1, id="an-error"),
        pytest.param("bad()\n", ["--exit-zero"], 0, id="exit-zero"),
        pytest.param("bad()\n", ["-e"], 0, id="exit-zero-short"),
        pytest.param("bad()\n", ["--statistics"], 1, id="statistics"),
        pytest.param("bad()\n", ["--nonsense"], 2, id="wrong-flag"),
    ],
)
def test_exit_codes(project: Path, check: Check, text: str, flags: list[str], code: int) -> None:
    write(project, {"main.py": text})
    assert check(*flags).code == code


def test_flags_reach_the_linter(project: Path, check: Check, linter: Linter) -> None:
    write(project, {"main.py": CLEAN})
    check("--no-cache", "--assume-distributed")
    check("--no-cache")
    assert [call["assume"] for call in linter.calls] == [True, False]


@pytest.mark.parametrize(
    ("line", "silent"),
    [
        pytest.param("bad()  # ddpify: ignore[DDP701]", True, id="ours"),
        pytest.param("bad()  # ddpify:ignore[ DDP402 , DDP701 ]", True, id="ours-several"),
        pytest.param("bad()  # ddpify: ignore[DDP7]", True, id="ours-prefix"),
        pytest.param("bad()  # ddpify: ignore", True, id="ours-bare"),
        pytest.param("bad()  # noqa: DDP701", True, id="noqa"),
        pytest.param("bad()  # NOQA:F401,DDP701", True, id="noqa-among-others"),
        pytest.param("bad()  # noqa", True, id="noqa-bare"),
        pytest.param("bad()  # why  # noqa: DDP701", True, id="behind-a-comment"),
        pytest.param("bad()  # noqa: F401", False, id="foreign-code"),
        pytest.param("bad()  # ddpify: ignore[DDP402]", False, id="another-code"),
        pytest.param("bad()  # ddpify: ignored", False, id="a-longer-word"),
        pytest.param("bad()  # ddpify: ignore-line", False, id="another-word"),
        pytest.param("bad()  # ddpify: ignore because", True, id="ours-with-a-reason"),
        pytest.param("bad()  # ddpify: ignore[DDP]", True, id="ours-family"),
        pytest.param("bad()  # ddpify: ignore[all]", True, id="ours-ALL"),
        pytest.param("bad()  # ddpify: ignore[]", False, id="ours-empty"),
        pytest.param("bad()  # ddpify: ignore[DDP701", False, id="ours-open"),
        pytest.param("bad()  # ddpify: ignore: DDP701, DDP402", True, id="ours-colon"),
        pytest.param("bad()  # ddpify: ignore: DDP402", False, id="ours-colon-another"),
        pytest.param("bad()  # ddpify: ignore DDP402", False, id="ours-no-bracket"),
        pytest.param("bad()  # ddpify: ignore: why", False, id="ours-colon-and-no-code"),
        pytest.param("bad()  # noqa: DDP", True, id="noqa-family"),
        pytest.param("bad()\n# ddpify: ignore-file", True, id="file"),
        pytest.param("# ddpify: ignore-file: DDP701 why\nbad()", True, id="file-colon"),
        pytest.param("# ddpify: ignore-file[DDP402, DDP7]\nbad()", True, id="file-codes"),
        pytest.param("# ddpify: ignore-file[DDP402]\nbad()", False, id="file-another-code"),
        pytest.param("# ddpify: ignore-files\nbad()", False, id="file-misspelt"),
        pytest.param("# ddpify: ignore[DDP701]\nbad()", False, id="the-line-above"),
        pytest.param("bad(\n    1,\n)  # ddpify: ignore[DDP701]", True, id="last-line-of-a-call"),
        pytest.param("f(\n    bad(),\n    1,  # noqa: DDP701\n)", True, id="within-a-call"),
        pytest.param("if bad(\n    1\n):  # noqa: DDP701\n    pass", True, id="head-of-a-block"),
        pytest.param("if bad(1):\n    pass  # noqa: DDP701", False, id="body-of-a-block"),
        pytest.param('x = bad(), "# noqa: DDP701"', False, id="in-a-text"),
        pytest.param('bad("""\n""")  # noqa: DDP701', True, id="behind-a-long-text"),
    ],
)
def test_comments_silence_their_statement(
    project: Path, check: Check, line: str, silent: bool
) -> None:
    write(project, {"main.py": f"x = 1\n{line}\n"})
    places = check("--ignore", "DDP005").places
    assert any("DDP701" in place for place in places) is not silent


@pytest.mark.parametrize(
    ("line", "flags", "message"),
    [
        pytest.param("x = 1  # ddpify: ignore[DDP701]", [], "DDP701 finds nothing", id="ours"),
        pytest.param("x = 1  # noqa: DDP701", [], "DDP701 finds nothing here", id="noqa"),
        pytest.param("x = 1  # ddpify: ignore", [], "nothing is wrong here", id="bare"),
        pytest.param("bad()  # noqa: DDP402, DDP701", [], "DDP402 finds nothing", id="one-of-two"),
        pytest.param("x = 1  # noqa: DDP701, DDP402", [], "DDP701, DDP402 find nothing", id="two"),
        pytest.param("x = 1  # ddpify: ignore[DDP999]", [], "no rule has the code", id="unknown"),
        pytest.param("x = 1  # ddpify: ignore[foo]", [], "no rule has the code FOO", id="word"),
        pytest.param("x = 1  # ddpify: ignore[ALL]", [], "DDP finds nothing here", id="ALL"),
        pytest.param("bad()  # ddpify: ignore[]", [], "it names no rule", id="empty"),
        pytest.param("bad()  # ddpify: ignored", [], "not written `# ddpify: ignore[", id="odd"),
        pytest.param("bad()  # ddpify: ignore: why", [], "not written", id="colon-and-no-code"),
        pytest.param("x = 1  # ddpify: ignore-file", [], "nothing is wrong here", id="file"),
        pytest.param("# ddpify: ignore-file[DDP7]", [], "DDP7 finds nothing", id="file-code"),
        pytest.param("bad()  # ddpify: ignore-file[DDP7]", [], "", id="file-used"),
        pytest.param(
            "bad()  # noqa: DDP402\n# ddpify: ignore-file", [], "", id="file-says-all-is-right"
        ),
        pytest.param("x = 1  # noqa: F401", [], "", id="foreign"),
        pytest.param("x = 1  # noqa", [], "", id="bare-noqa"),
        pytest.param("x = 1  # ddpify: ignore[DDP701]", ["--ignore", "DDP7"], "", id="rule-is-off"),
        pytest.param("x = 1  # ddpify: ignore", ["--ignore", "DDP7"], "", id="bare-some-are-off"),
        pytest.param("x = 1  # noqa: DDP701, DDP005", [], "", id="meant-to-stay"),
        pytest.param("x = 1  # noqa: DDP701", ["--ignore", "DDP005"], "", id="not-wanted"),
        pytest.param('x = "# noqa: DDP701"', [], "", id="in-a-text"),
    ],
)
def test_unused_comments_are_reported(
    project: Path, check: Check, line: str, flags: list[str], message: str
) -> None:
    write(project, {"main.py": f"x = 1\n{line}\n"})
    said = check(*flags)
    assert [place for place in said.places if "DDP005" in place] == (
        ["main.py:2 DDP005"] if message else []
    )
    assert message in said.out


@pytest.mark.parametrize(
    ("named", "told"),
    [
        pytest.param(["."], True, id="project"),
        pytest.param([], True, id="nothing-named"),
        pytest.param(["src", "train.py"], True, id="all-of-it"),
        pytest.param(["src"], False, id="a-folder"),
        pytest.param(["src/util.py"], False, id="a-script"),
        pytest.param(["src/util.py", "train.py", "--no-cache"], False, id="files"),
    ],
)
def test_only_the_whole_project_tells_that_a_comment_is_unused(
    project: Path, check: Check, named: list[str], told: bool
) -> None:
    """What is wrong in a file may show only when a script that calls it is read, too."""
    util = 'x = 1  # noqa: DDP701\nif __name__ == "__main__":\n    print(x)\n'
    settings = '[tool.ddpify]\nexclude = ["old"]\n'
    write(project, {"pyproject.toml": settings, "old/a.py": "x = 1\n"})
    write(project, {"src/util.py": util, "train.py": CLEAN})
    assert check(*named).places == (["src/util.py:1 DDP005"] if told else [])
    check(*named, "--fix")
    assert ("noqa" in (project / "src/util.py").read_text()) is not told


def test_the_order_is_that_of_places(project: Path, check: Check) -> None:
    write(project, {"b.py": "noisy(); bad()\nslow()\n", "a/z.py": "bad()\n"})
    assert check("b.py", "a").places == [
        "a/z.py:1 DDP701",
        "b.py:1 DDP501",
        "b.py:1 DDP701",
        "b.py:2 DDP402",
    ]


def test_what_is_no_matter_of_several_processes_is_off_unless_it_is_selected() -> None:
    def off(settings: Settings, **flags: tuple[str, ...]) -> bool:
        return "DDP421" in chosen(settings, CheckRequest((), **flags)).ignore

    assert off(Settings())
    assert not off(Settings(), extend_select=("DDP421",))
    assert not off(Settings(), select=("ALL",))
    assert not off(Settings(extend_select=("DDP4",)))
