"""The hook for pre-commit and the GitHub Action: valid, and run as those programs run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import identify.extensions
import identify.identify
import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
BUG = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(2, 2))
torch.save(model.state_dict(), "model.pt")
dist.destroy_process_group()
"""
CODE = "DDP601"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one bug."""
    top = tmp_path / "project"
    top.mkdir()
    (top / "main.py").write_text(BUG)
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    return top


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """ddpify's own repository, as a commit."""
    top = tmp_path / "source"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, done.stdout.split("\0")):
        if name.startswith(("ddpify/", "runtime/")) or "/" not in name:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, top / name)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=top, check=True)
    return top


def test_the_action_has_the_shape_that_github_wants() -> None:
    command = ["check-jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml"]
    done = subprocess.run(
        [PROGRAMS / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hooks_have_the_shape_that_pre_commit_wants() -> None:
    command = [PROGRAMS / "pre-commit", "validate-manifest", ".pre-commit-hooks.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def sent() -> set[str]:
    """Names of files, one of each kind, that pre-commit sends to the hook."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    wanted = set(hook["types_or"])
    names = {name for name, tags in identify.extensions.NAMES.items() if tags & wanted}
    suffixes = (name for name, tags in identify.extensions.EXTENSIONS.items() if tags & wanted)
    return names | {f"one.{suffix}" for suffix in suffixes} | {"Makefile.am", "Makefile.in"}


def test_every_kind_of_file_that_the_hook_is_sent_can_be_read(tmp_path: Path) -> None:
    """Shell is not read as Python: what is not valid in it would be a finding."""
    kinds = {"python": "x = 1\n", "shell": 'if [ -n "$A" ]; then a --b; fi\n'}
    for name in sent():
        tags = identify.identify.tags_from_filename(name)
        (tmp_path / name).write_text(next((kinds[one] for one in kinds if one in tags), "all:\n"))
    for name, line in (("run", "#!/usr/bin/fish"), ("go.now", "#!/bin/sh"), ("be", "#!/bin/tcsh")):
        (tmp_path / name).write_text(f"{line}\nif test -n a; b; end\n")
    names = sorted(one.name for one in tmp_path.iterdir())
    assert {"one.zsh", "Makefile.am", ".envrc", "PKGBUILD", "one.wsgi", "run"} <= set(names)
    command = [sys.executable, "-m", "ddpify", "check", "--no-cache", *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def steps() -> dict[str, str]:
    """What the action's steps run, by their names."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    return {step["name"]: step["run"] for step in action["runs"]["steps"]}


def step(
    name: str, folder: Path, runner: Path, inputs: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """One step, in the shell that GitHub runs it in."""
    given = {f"INPUT_{key.upper()}": value for key, value in inputs.items()}
    environment = {"RUNNER_TEMP": str(runner), "GITHUB_OUTPUT": str(runner / "output"), **given}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps()[name]],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner on which the first step has installed this very ddpify."""
    programs = tmp_path / "runner" / "ddpify" / "bin"
    programs.mkdir(parents=True)
    (programs / "ddpify").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ddpify "$@"\n')
    (programs / "ddpify").chmod(0o755)
    return tmp_path / "runner"


def test_the_action_annotates_and_fails(project: Path, runner: Path) -> None:
    done = step("Check", project, runner, {"paths": ".", "args": "", "sarif": ""})
    assert done.returncode == 1, done.stderr
    assert f"::warning title={CODE} " in done.stdout
    assert not (runner / "output").exists()


def test_the_action_passes_paths_and_arguments(project: Path, runner: Path) -> None:
    (project / "other").mkdir()
    inputs = {"paths": "main.py other", "args": "--ignore DDP6 --no-cache", "sarif": ""}
    done = step("Check", project, runner, inputs)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not (project / ".ddpify_cache").exists()


@pytest.mark.parametrize(
    ("paths", "args", "code"),
    [
        pytest.param("right.py\nmain.py\n", "", 1, id="paths"),
        pytest.param("right.py\n\n  other\n", "", 0, id="blank-lines"),
        pytest.param("main.py", "--no-cache\n--ignore\nDDP6\n", 0, id="arguments"),
        pytest.param("", "\n", 1, id="none"),
    ],
)
def test_the_action_reads_all_lines_of_its_inputs(
    project: Path, runner: Path, paths: str, args: str, code: int
) -> None:
    (project / "other").mkdir()
    (project / "right.py").write_text("x = 1\n")
    done = step("Check", project, runner, {"paths": paths, "args": args, "sarif": ""})
    assert done.returncode == code, done.stdout + done.stderr
    assert (CODE in done.stdout) is bool(code)


def test_the_action_writes_sarif(project: Path, runner: Path) -> None:
    done = step("Check", project, runner, {"paths": ".", "args": "", "sarif": "out/ddpify.sarif"})
    assert done.returncode == 1
    assert (runner / "output").read_text() == "sarif=out/ddpify.sarif\n"
    (run,) = json.loads((project / "out" / "ddpify.sarif").read_text())["runs"]
    assert CODE in {result["ruleId"] for result in run["results"]}


def test_every_input_reaches_a_step() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = [value for one in action["runs"]["steps"] for value in one["env"].values()]
    for name in action["inputs"]:
        assert f"${{{{ inputs.{name} }}}}" in given


@pytest.mark.install
def test_the_action_installs_itself(project: Path, source: Path, tmp_path: Path) -> None:
    runner = tmp_path / "fresh"
    runner.mkdir()
    os.environ["ACTION_PATH"] = str(source)
    try:
        done = step("Install ddpify", project, runner, {"version": ""})
    finally:
        del os.environ["ACTION_PATH"]
    assert done.returncode == 0, done.stderr
    done = step("Check", project, runner, {"paths": ".", "args": "", "sarif": ""})
    assert done.returncode == 1, done.stderr
    assert f"::warning title={CODE} " in done.stdout


@pytest.mark.thorough
@pytest.mark.install
def test_pre_commit_runs_the_hook(
    project: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    command = [PROGRAMS / "pre-commit", "try-repo", str(source), "ddpify-check", "--color=never"]
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    done = subprocess.run(
        [*command, "--all-files"], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"main.py:7:1: warning {CODE} " in done.stdout
    (project / "main.py").write_text("x = 1\n")
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    done = subprocess.run(
        [*command, "--all-files"], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
