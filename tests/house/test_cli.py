"""The command line: flags reach the pipeline, exit codes and streams are as documented."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

import ddpify
from ddpify import cli
from ddpify.belongings import Belongings
from ddpify.outcome import Outcome, Refusal
from ddpify.plan import Change
from ddpify.settings import Settings
from ddpify.steps import StepListener
from ddpify.write import WrittenCopy
from tests.report.samples import HAND, MAIN, at, outcome

SETTINGS_FLAGS = (
    "--accept",
    "--batch-dim",
    "--batch-size",
    "--bucket-cap",
    "--checkpoint",
    "--config",
    "--find-unused",
    "--fsdp-bf16",
    "--fsdp-hybrid",
    "--fsdp-meta",
    "--fsdp-min-params",
    "--fsdp-offload",
    "--fsdp-recompute",
    "--fsdp-reshard",
    "--fsdp-wrap",
    "--lr-scale",
    "--no-fsdp-bf16",
    "--no-fsdp-hybrid",
    "--no-fsdp-meta",
    "--no-fsdp-offload",
    "--no-fsdp-recompute",
    "--no-fsdp-reshard",
    "--no-static-graph",
    "--no-whole-batches",
    "--runtime",
    "--runtime-module",
    "--static-graph",
    "--strategy",
    "--sync-bn",
    "--warmup-steps",
    "--whole-batches",
)
COMMON = ("--color", "--format", "--no-color")
FOLDING = ("--fold", "--full")
MIGRATE = tuple("--force --inplace --interactive --output --partial -o -p".split())
NODES = ("--gpus-per-node", "--launcher", "--nodes")
FLAGS = {
    "migrate": sorted((*SETTINGS_FLAGS, *NODES, *COMMON, *FOLDING, *MIGRATE)),
    "diff": sorted((*SETTINGS_FLAGS, *NODES, *COMMON, *FOLDING)),
    "convert-checkpoint": ["--force"],
    "init": sorted(
        (*NODES, *"--color --dry-run --no-color --no-pre-commit --pre-commit --yes -y".split())
    ),
    "check": sorted(
        "--add-noqa --assume-distributed --cache-dir --color --config --diff --exclude --exit-zero "
        "--extend-select --fix --force-exclude --format --ignore --ignore-noqa --no-cache "
        "--no-color --output-file --output-format --quiet --select --show-files --show-settings "
        "--show-source --statistics --stdin-filename --unsafe-fixes --verbose -e -o -q -v".split()
    ),
    "clean": [],
    "completion": [],
    "env": ["--python"],
    "plan": sorted(
        (*SETTINGS_FLAGS, *COMMON, *"--gpu-memory --measure --nproc --python --timeout".split())
    ),
    "mcp": ["--python"],
    "schema": [],
    "undo": ["--list"],
    "rule": sorted("--all --format --output-format".split()),
    "server": ["--stdio"],
    "verify": sorted(
        "--baseline --checkpoint --color --distributed-only --dtype --full --html --ignore-output "
        "--json --junit --keep --markdown --neutralise --neutralize --no-color --nproc --overfit "
        "--python --steps --strategy --summary --timeout --tolerance".split()
    ),
}


class WriteError(Exception):
    """Stands for the one of ddpify.write."""


class Layers:
    """Stands for the layers below the command line, and remembers what they were asked."""

    def __init__(self, result: Outcome) -> None:
        self.result = result
        self.settings = Settings()
        self.written: list[tuple[str, Path]] = []
        self.dirty: tuple[str, ...] = ()
        self.failure = ""

    def migrate(
        self,
        paths: Sequence[Path],
        settings: Settings,
        step: StepListener,
        partial: bool = False,
    ) -> Outcome:
        """As ``pipeline.migrate``."""
        assert paths == (Path("main.py"),)
        self.settings = settings
        return self.result

    def apply(self, changes: Sequence[Change], root: Path, command: str) -> tuple[Path, ...]:
        """As ``write.apply``."""
        if self.failure:
            raise WriteError(self.failure)
        assert command == "ddpify migrate main.py --inplace"
        self.written += [("inplace", root)]
        return (root / ".ddpify/undo/1",)

    def write_to(
        self,
        changes: Sequence[Change],
        root: Path,
        out: Path,
        also: Sequence[str],
        force: bool = False,
    ) -> WrittenCopy:
        """As ``write.write_to``."""
        assert tuple(also) == ("main.py", "data.py")
        self.written += [("output", out)]
        return WrittenCopy((out / "ddp_utils.py", out / "main.py", out / "data.py"), Belongings())

    def dirty_files(self, paths: Sequence[str], root: Path) -> tuple[str, ...]:
        """As ``write.dirty_files``."""
        return tuple(path for path in self.dirty if path in paths)


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layers:
    """The command line's own layers replaced; the current folder is the project."""
    monkeypatch.chdir(tmp_path)
    fake = Layers(outcome(tmp_path))
    modules = {
        "pipeline": {"migrate": fake.migrate},
        "write": {
            "apply": fake.apply,
            "write_to": fake.write_to,
            "dirty_files": fake.dirty_files,
            "tracked": lambda root: frozenset(),
            "WriteError": WriteError,
        },
    }
    for name, members in modules.items():
        module = ModuleType(f"ddpify.{name}")
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(ddpify, name, module, raising=False)
    return fake


CLEAN = {"changes": (), "findings": (), "clashes": (), "notes": ()}


@pytest.mark.parametrize(
    ("arguments", "fields", "code"),
    [
        pytest.param(["migrate", "main.py"], {}, 1, id="migrate-something-to-change"),
        pytest.param(["migrate", "main.py"], CLEAN, 0, id="migrate-nothing"),
        pytest.param(["migrate", "--inplace", "main.py"], {}, 0, id="migrate-inplace"),
        pytest.param(["migrate", "-o", "out", "main.py"], {}, 0, id="migrate-output"),
        pytest.param(["diff", "main.py"], {}, 1, id="diff-something"),
        pytest.param(["diff", "main.py"], CLEAN, 0, id="diff-nothing"),
        pytest.param(["diff", "--format=markdown", "main.py"], {}, 1, id="markdown-something"),
        pytest.param(["diff", "--format=json", "main.py"], CLEAN, 0, id="json-nothing"),
        pytest.param(["diff", "main.py"], {**CLEAN, "findings": (HAND,)}, 0, id="diff-advice-only"),
        pytest.param(["migrate", "--inplace", "-o", "out", "main.py"], {}, 2, id="two-targets"),
        pytest.param(["migrate", "--strategy=zero", "main.py"], {}, 2, id="no-such-strategy"),
        pytest.param(["migrate", "--strategy=auto", "main.py"], {}, 2, id="auto-is-for-plan"),
        pytest.param(["migrate", "--fsdp-wrap=a-b", "main.py"], {}, 2, id="bad-class"),
        pytest.param(["migrate", "--runtime-module=a-b", "main.py"], {}, 2, id="bad-module"),
        pytest.param(["migrate"], {}, 2, id="no-paths"),
        pytest.param(["nonsense"], {}, 2, id="no-command"),
        pytest.param(["--version"], {}, 0, id="version"),
        pytest.param(["--help"], {}, 0, id="help"),
    ],
)
def test_exit_codes(
    layers: Layers, tmp_path: Path, arguments: list[str], fields: dict[str, object], code: int
) -> None:
    layers.result = outcome(tmp_path, **fields)
    assert cli.main(arguments) == code


@pytest.mark.parametrize("command", ["migrate", "diff"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_refusal_is_one_line_and_nothing_is_written(
    layers: Layers, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, form: str
) -> None:
    refusals = (Refusal("no training loop", at(3)),)
    layers.result = outcome(tmp_path, refusals=refusals, findings=(HAND,))
    extra = ["--inplace"] if command == "migrate" else []
    assert cli.main([command, *extra, f"--format={form}", "main.py"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "ddpify: main.py:3: no training loop\n"
    assert bool(shown.out) is (form == "json")
    assert layers.written == []


@pytest.mark.parametrize("command", ["migrate", "diff"])
def test_dry_runs_keep_the_patch_apart_from_the_rest(
    layers: Layers, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert cli.main([command, "main.py"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("--- a/main.py\n+++ b/main.py\n")
    assert "--- /dev/null\n+++ b/ddp_utils.py\n" in shown.out
    assert "Left to do by hand:" not in shown.out
    assert "\nLeft to do by hand:\n  main.py:20: D402" in shown.err
    assert shown.err.endswith("this does it:\n  ddpify migrate main.py --inplace\n")
    assert layers.written == []


@pytest.mark.parametrize(
    ("flags", "terminal", "whole"),
    [
        pytest.param([], True, False, id="terminal"),
        pytest.param([], False, True, id="pipe"),
        pytest.param(["--full"], True, True, id="full"),
        pytest.param(["--fold"], False, False, id="fold"),
    ],
)
def test_helpers_are_folded_on_a_terminal(
    layers: Layers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    terminal: bool,
    whole: bool,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    cli.main(["diff", *flags, "main.py"])
    shown = capsys.readouterr().out
    assert ("+def helper_1" in shown) is whole
    assert ("+ ddp_utils.py, 60 lines, not shown: --full" in shown) is not whole


def test_the_command_that_writes_has_the_same_options(
    layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--batch-size=per-rank", "--static-graph", "--no-whole-batches"]
    cli.main(["diff", "main.py", "--fold", *flags, "--accept", "DDP006@a b.py:2"])
    last = capsys.readouterr().err.splitlines()[-1]
    given = "--batch-size per-rank --no-whole-batches --static-graph --accept 'DDP006@a b.py:2'"
    assert last == f"  ddpify migrate main.py {given} --inplace"


def test_inplace_writes_and_says_what_to_run(
    layers: Layers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["migrate", "--inplace", "main.py"]) == 0
    assert layers.written == [("inplace", tmp_path)]
    shown = capsys.readouterr().out
    assert "Wrote 2 files:\n  ddp_utils.py\n  main.py\n4 hunks in 2 files" in shown
    assert "  torchrun --standalone --nproc_per_node=gpu main.py\n" in shown
    assert "are in .ddpify/undo/1/before.\nTake it back: ddpify undo\n" in shown
    assert "@@" not in shown


def test_output_writes_elsewhere_and_names_the_new_place(
    layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["migrate", "-o", "out", "main.py"]) == 0
    assert layers.written == [("output", Path("out"))]
    shown = capsys.readouterr().out
    assert "  cd out && torchrun --standalone --nproc_per_node=gpu main.py\n" in shown
    assert "\nCopied 1 file more, unchanged.\n" in shown


def test_inplace_stops_on_uncommitted_changes_unless_forced(
    layers: Layers, capsys: pytest.CaptureFixture[str]
) -> None:
    layers.dirty = ("main.py", "unrelated.py")
    assert cli.main(["migrate", "--inplace", "main.py"]) == 2
    assert capsys.readouterr().err.startswith("ddpify: main.py: uncommitted changes")
    assert layers.written == []
    assert cli.main(["migrate", "--inplace", "--force", "main.py"]) == 0


def test_a_failed_write_is_one_line(layers: Layers, capsys: pytest.CaptureFixture[str]) -> None:
    layers.failure = "main.py: read-only"
    assert cli.main(["migrate", "--inplace", "main.py"]) == 2
    assert capsys.readouterr().err == "ddpify: main.py: read-only\n"


def test_a_bug_ends_with_its_traceback_and_exit_code_2(
    layers: Layers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> Outcome:
        raise ZeroDivisionError("in rule D201")

    monkeypatch.setattr(ddpify.pipeline, "migrate", broken)  # type: ignore[attr-defined]
    assert cli.main(["diff", "main.py"]) == 2
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: in rule D201" in shown
    assert shown.endswith("please report the lines above.\n")


def test_flags_reach_the_pipeline(layers: Layers) -> None:
    flags = ["--runtime=import", "--runtime-module=core.dist", "--batch-size=per-rank"]
    cli.main(["migrate", *flags, "--sync-bn=off", "main.py"])
    assert layers.settings == Settings(
        runtime="import", runtime_module="core.dist", batch_size="per-rank", sync_bn="off"
    )


def test_flags_win_over_the_projects_settings(layers: Layers, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.ddpify]\nbatch-size = "per-rank"\n')
    cli.main(["diff", "main.py"])
    assert layers.settings.batch_size == "per-rank"
    cli.main(["diff", "--batch-size=global", "main.py"])
    assert layers.settings.batch_size == "global"


def test_json_of_a_migration_names_the_written_files(
    layers: Layers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["migrate", "--inplace", "--format=json", "main.py"])
    document = json.loads(capsys.readouterr().out)
    assert document["written"] == [str(tmp_path / "ddp_utils.py"), str(tmp_path / MAIN.path)]


@pytest.mark.parametrize(
    ("flags", "no_color", "terminal", "colored"),
    [
        pytest.param([], "", True, True, id="terminal"),
        pytest.param([], "", False, False, id="pipe"),
        pytest.param([], "1", True, False, id="NO_COLOR"),
        pytest.param(["--color"], "1", False, True, id="flag-on"),
        pytest.param(["--no-color"], "", True, False, id="flag-off"),
    ],
)
def test_colour(
    layers: Layers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    no_color: str,
    terminal: bool,
    colored: bool,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    cli.main(["diff", *flags, "main.py"])
    assert ("\x1b[" in capsys.readouterr().out) is colored


@pytest.mark.parametrize("command", sorted(FLAGS))
def test_the_flags_are_these(command: str) -> None:
    """A new flag is a promise: it is added here, to the README and to the changelog."""
    parameters = cli.cli.commands[command].params
    spelled = [name for one in parameters for name in (*one.opts, *one.secondary_opts)]
    assert sorted(name for name in spelled if name.startswith("-")) == FLAGS[command]


def test_the_commands_are_these() -> None:
    assert sorted(cli.cli.commands) == sorted(FLAGS)
