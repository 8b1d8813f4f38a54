"""Settings come from the nearest pyproject.toml; a mistake in it is one clear sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings, SettingsError, load, of_strategy


def project(folder: Path, text: str) -> Path:
    """A script below a pyproject.toml with this text."""
    (folder / "pyproject.toml").write_text(text)
    script = folder / "src" / "main.py"
    script.parent.mkdir(exist_ok=True)
    script.touch()
    return script


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", Settings(), id="empty"),
        pytest.param(
            '[tool.ddpify]\nselect = ["D2"]\nignore = ["D203"]\nruntime-module = "core.dist"\n',
            Settings(select=("D2",), ignore=("D203",), runtime_module="core.dist"),
            id="dashes-and-lists",
        ),
        pytest.param(
            '[tool.ddpify]\nextend-select = ["DDP5"]\nexclude = ["old"]\n'
            'per-file-ignores = {"tests/*" = ["DDP5"], "a.py" = []}\n',
            Settings(
                extend_select=("DDP5",),
                exclude=("old",),
                per_file_ignores=(("tests/*", ("DDP5",)), ("a.py", ())),
            ),
            id="files",
        ),
        pytest.param("[tool.black]\nline-length = 100\n", Settings(line_length=100), id="black"),
        pytest.param("[tool.black]\n", Settings(line_length=88), id="black-as-it-comes"),
        pytest.param("[tool.ruff]\n", Settings(), id="ruff-for-its-rules"),
        pytest.param("[tool.ruff]\nline-length = 79\n", Settings(line_length=79), id="ruff"),
        pytest.param(
            "[tool.black]\nline-length = 100\n[tool.ddpify]\nline-length = 120\n",
            Settings(line_length=120),
            id="own-line-length-wins",
        ),
        pytest.param(
            "[tool.ddpify]\nstatic-graph = true\n", Settings(static_graph=True), id="bool"
        ),
    ],
)
def test_pyproject(tmp_path: Path, text: str, expected: Settings) -> None:
    assert load(project(tmp_path, text), {}) == expected


def test_the_nearest_pyproject_counts(tmp_path: Path) -> None:
    project(tmp_path, "[tool.ddpify]\nline-length = 120\n")
    inner = tmp_path / "src"
    (inner / "pyproject.toml").write_text("[tool.ddpify]\nline-length = 90\n")
    assert load(inner / "main.py", {}).line_length == 90
    assert load(inner, {}).line_length == 90


def test_a_pyproject_without_our_table_hides_none_above(tmp_path: Path) -> None:
    project(tmp_path, '[tool.ddpify]\nignore = ["DDP5"]\n[tool.ruff]\nline-length = 100\n')
    inner = tmp_path / "src"
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert load(inner / "main.py", {}) == Settings(ignore=("DDP5",), line_length=100)
    (inner / "pyproject.toml").write_text("[tool.black]\nline-length = 79\n")
    assert load(inner / "main.py", {}) == Settings(ignore=("DDP5",), line_length=79)


def test_without_our_table_the_nearest_formatter_counts(tmp_path: Path) -> None:
    project(tmp_path, "[tool.black]\nline-length = 120\n")
    inner = tmp_path / "src"
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert load(inner / "main.py", {}).line_length == 120
    (inner / "pyproject.toml").write_text("[tool.ruff]\nline-length = 79\n")
    assert load(inner / "main.py", {}).line_length == 79


def test_a_flag_that_was_not_given_changes_nothing(tmp_path: Path) -> None:
    script = project(tmp_path, '[tool.ddpify]\nbatch-size = "per-rank"\n')
    assert load(script, {"batch_size": None, "runtime": "import"}) == Settings(
        batch_size="per-rank", runtime="import"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[tool.ddpify\n", "cannot be read", id="not-toml"),
        pytest.param("[tool.ddpify]\nbatchsize = 1\n", "no key 'batchsize'; keys are", id="key"),
        pytest.param("[tool]\nddpify = 3\n", "must be a table", id="not-a-table"),
        pytest.param("tool = 3\n", "[tool] must be a table", id="no-tools"),
        pytest.param('[tool.ddpify]\nstrategy = "zero"\n', 'strategy must be "ddp"', id="strategy"),
        pytest.param("[tool.ddpify]\nselect = [1]\n", "a list of rule codes", id="select"),
        pytest.param('[tool.ddpify]\nselect = "D2"\n', "a list of rule codes", id="not-a-list"),
        pytest.param("[tool.ddpify]\nexclude = 3\n", "a list of file patterns", id="exclude"),
        pytest.param(
            '[tool.ddpify]\nper-file-ignores = {"a" = "DDP5"}\n',
            "a table of file patterns",
            id="per-file-ignores",
        ),
        pytest.param("[tool.ddpify]\nline-length = true\n", "whole number", id="line-length"),
        pytest.param('[tool.ddpify]\nruntime-module = "a.b-c"\n', "dotted module", id="module"),
    ],
)
def test_mistakes_name_the_file_and_the_way_out(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(project(tmp_path, text), {})
    assert str(caught.value).startswith(f"{tmp_path / 'pyproject.toml'}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value).split("(")[0]


@pytest.mark.parametrize(
    ("settings", "rule", "wanted"),
    [
        pytest.param(Settings(), "D201", True, id="all"),
        pytest.param(Settings(select=("D2",)), "D201", True, id="selected-family"),
        pytest.param(Settings(select=("D2",)), "D301", False, id="not-selected"),
        pytest.param(Settings(ignore=("D201",)), "D201", False, id="ignored"),
        pytest.param(Settings(select=("D2",), ignore=("D201",)), "D201", False, id="both"),
        pytest.param(Settings(select=("D201",), ignore=("D2",)), "D201", True, id="longer-wins"),
        pytest.param(Settings(select=("D2",), ignore=("D2",)), "D201", False, id="as-long"),
        pytest.param(Settings(select=("D3",), extend_select=("D2",)), "D201", True, id="extended"),
        pytest.param(Settings(extend_select=("D2",)), "D301", True, id="extended-all"),
    ],
)
def test_select_and_ignore(settings: Settings, rule: str, wanted: bool) -> None:
    assert settings.wants(rule) is wanted


def test_the_same_choices_for_another_strategy() -> None:
    """What goes with the other one is left out; all else stays."""
    ddp = Settings(bucket_cap=5, static_graph=True, find_unused="on", sync_bn="off")
    fsdp = Settings(strategy="fsdp", fsdp_bf16=True, fsdp_wrap=("Block",), sync_bn="off")
    assert of_strategy(ddp, "ddp") == ddp
    assert of_strategy(fsdp, "fsdp") == fsdp
    assert of_strategy(ddp, "fsdp") == Settings(strategy="fsdp", sync_bn="off")
    assert of_strategy(fsdp, "ddp") == Settings(sync_bn="off")
