"""The extension for VS Code, as far as it can be tried without one: `make vscode` builds it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ddpify.cli import cli

HERE = Path(__file__).parents[2] / "editors" / "vscode"
MANIFEST = json.loads((HERE / "package.json").read_text("utf-8"))
SOURCE = (HERE / "source" / "extension.js").read_text("utf-8")


def test_the_manifest_names_what_there_is() -> None:
    main = MANIFEST["main"].removeprefix("./")
    assert MANIFEST["scripts"]["bundle"].endswith(f"--outfile={main}")
    assert (HERE / MANIFEST["scripts"]["bundle"].split()[1]).is_file()
    assert f"!{main}" in (HERE / ".vscodeignore").read_text().split()
    contributed = MANIFEST["contributes"]
    commands = {one["command"] for one in contributed["commands"]}
    assert set(re.findall(r"registerCommand\(\"([^\"]+)", SOURCE)) == commands
    settings = {f"ddpify.{one}" for one in re.findall(r"get\(\"(\w+)\"\)", SOURCE)}
    assert settings == set(contributed["configuration"]["properties"])
    readme = (HERE / "README.md").read_text("utf-8")
    assert all(f"`{one}`" in readme for one in settings)
    assert "vscode-languageclient" in MANIFEST["devDependencies"]
    assert "server" in cli.commands


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_command_is_found_where_people_have_it(tmp_path: Path) -> None:
    command = tmp_path / "venv" / "bin" / "ddpify"
    command.parent.mkdir(parents=True)
    command.touch()
    none = {"path": "", "interpreter": "", "folders": [str(tmp_path / "no"), str(tmp_path)]}
    asked = [
        none,
        {**none, "folders": []},
        {**none, "interpreter": "/opt/python"},
        {**none, "interpreter": "/opt/python", "path": "/opt/ddpify"},
    ]
    script = (
        "const { serverCommand } = require('./source/command');"
        f"console.log(JSON.stringify({json.dumps(asked)}.map(serverCommand)))"
    )
    done = subprocess.run(
        ["node", "-e", script], cwd=HERE, capture_output=True, text=True, check=True
    )
    assert [[one["command"], *one["args"]] for one in json.loads(done.stdout)] == [
        [str(command), "server"],
        ["ddpify", "server"],
        ["/opt/python", "-m", "ddpify", "server"],
        ["/opt/ddpify", "server"],
    ]
