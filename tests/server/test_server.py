"""`ddpify server`, driven as an editor drives it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpify import cli
from tests.server.client import EditorClient

pytestmark = pytest.mark.xdist_group("server")  # one process for all
NET = """\
import torch.distributed as dist


def setup():
    dist.init_process_group("gloo")
    return dist.get_rank()


def wait(rank):
    if rank == 0:
        dist.barrier()
"""
TRAIN = """\
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from net import setup, wait


def main():
    rank = setup()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    data = torch.utils.data.TensorDataset(torch.randn(8, 4))
    loader = DataLoader(data, 2, sampler=DistributedSampler(data))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "net.pt")


if __name__ == "__main__":
    main()
"""
ERROR, WARNING, INFORMATION = 1, 2, 3
FOLLOWS, SILENCES = "(DDP201)", "Silence DDP201 here with a comment"


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditorClient]:
    client = EditorClient(tmp_path_factory.mktemp("editor").resolve())
    try:
        yield client
        assert client.end() == 0
    finally:
        client.kill()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path.resolve()
    (top / "pyproject.toml").write_text('[tool.ddpify]\nignore = ["DDP102"]\n')
    (top / "net.py").write_text(NET)
    (top / "train.py").write_text(TRAIN)
    return top


def codes(said: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(one["code"], one["severity"]) for one in said]


def test_open_edit_diagnose_fix(editor: EditorClient, project: Path) -> None:
    train = project / "train.py"
    (found,) = editor.open(train)
    assert (found["code"], found["severity"], found["source"]) == ("DDP201", ERROR, "ddpify")
    assert found["range"]["start"] == {"line": 14, "character": 4}
    assert found["range"]["end"]["line"] == 14  # not the whole loop
    assert "every epoch shuffles in the same order" in found["message"]
    assert found["codeDescription"]["href"].startswith("https://OWNER.github.io/ddpify/rules/")
    made, passed = found["relatedInformation"]
    assert made["location"]["uri"] == train.as_uri()
    assert (made["location"]["range"]["start"]["line"], made["message"]) == (
        12,
        "the sampler is made",
    )
    assert passed["message"] == "the pass over its loader"
    moved = editor.type(train, TRAIN.replace("import torch\n", "import torch\n# one line more\n"))
    assert [one["range"]["start"]["line"] for one in moved] == [15]
    offered = editor.actions(train, moved[0]["range"])
    (title,) = (one for one in offered if one.endswith(FOLLOWS))
    assert offered[title]["isPreferred"]
    assert "edit" not in offered[title]
    assert editor.choose(offered[title]) == []
    assert "loader.sampler.set_epoch(epoch)" in editor.texts[train]
    assert train.read_text() == TRAIN  # the editor writes, nobody else
    assert editor.save(train) == []


def test_the_page_of_a_rule_is_shown_where_it_is_broken(
    editor: EditorClient, project: Path
) -> None:
    train = project / "train.py"
    editor.open(train)
    asked = {"textDocument": {"uri": train.as_uri()}, "position": {"line": 14, "character": 6}}
    shown = editor.ask("textDocument/hover", asked)["contents"]
    assert shown["kind"] == "markdown"
    assert shown["value"].startswith("## DDP201 ")
    assert "### Wrong" in shown["value"]
    asked["position"] = {"line": 2, "character": 0}
    assert editor.ask("textDocument/hover", asked) is None


def test_what_is_typed_in_one_file_shows_in_another_that_is_open(
    editor: EditorClient, project: Path
) -> None:
    net, train = project / "net.py", project / "train.py"
    assert codes(editor.open(net)) == [("DDP801", INFORMATION)]  # nothing is seen to call it
    editor.open(train)
    editor.type(train, TRAIN.replace("    if rank == 0:\n", "    wait(rank)\n    if rank == 0:\n"))
    (found,) = editor.told(net)
    assert (found["code"], found["severity"]) == ("DDP801", ERROR)
    assert found["relatedInformation"][0]["location"]["uri"] == train.as_uri()
    assert codes(editor.close(train)) == []
    assert codes(editor.told(net)) == [("DDP801", INFORMATION)]  # it was not written


def test_a_comment_silences(editor: EditorClient, project: Path) -> None:
    train = project / "train.py"
    (found,) = editor.open(train)
    assert editor.choose(editor.actions(train, found["range"])[SILENCES]) == []
    assert "    for epoch in range(3):  # noqa: DDP201\n" in editor.texts[train]


def test_all_safe_fixes_at_once_and_nothing_for_a_text_that_was_not_read(
    editor: EditorClient, project: Path
) -> None:
    train = project / "train.py"
    (found,) = editor.open(train)
    offered = editor.actions(train, found["range"])
    (every,) = (one for one in offered.values() if one["kind"] == "source.fixAll.ddpify")
    newer = {"uri": train.as_uri(), "version": 2}
    change = {"textDocument": newer, "contentChanges": [{"text": f"\n{TRAIN}"}]}
    editor.tell("textDocument/didChange", change)
    assert editor.actions(train, found["range"]) == {}
    assert "edit" not in editor.ask("codeAction/resolve", every)
    assert codes(editor.type(train, TRAIN)) == [("DDP201", ERROR)]
    assert editor.choose(every) == []


def test_what_is_no_python_yet_is_said_and_forgotten(editor: EditorClient, project: Path) -> None:
    train = project / "train.py"
    editor.open(train)
    (broken,) = editor.type(train, TRAIN.replace("for epoch in range(3):", "for epoch in range(3"))
    assert (broken["code"], broken["severity"]) == ("DDP000", ERROR)
    assert broken["range"]["start"]["line"] == 14
    assert codes(editor.type(train, TRAIN)) == [("DDP201", ERROR)]
    for odd in (
        "",
        "\0",
        "def\n" * 3,
        "# -*- coding: nothing -*-\n",
        "é = '\N{GRINNING FACE}'; dist.(\n",
    ):
        editor.type(train, odd)
    assert codes(editor.type(train, TRAIN)) == [("DDP201", ERROR)]


def test_columns_are_counted_as_the_editor_counts(editor: EditorClient, project: Path) -> None:
    net = project / "net.py"
    (found,) = editor.open(net, NET.replace("        dist", "        '\N{GRINNING FACE}é'; dist"))
    assert found["range"]["start"]["character"] == len("        ") + len("'XXé'; ")


def test_settings_count_and_a_broken_one_is_said(editor: EditorClient, project: Path) -> None:
    train, settings = project / "train.py", project / "pyproject.toml"
    editor.open(train)
    changed = {"changes": [{"uri": settings.as_uri(), "type": 2}]}
    settings.write_text('[tool.ddpify]\nignore = ["DDP2"]\n')
    editor.tell("workspace/didChangeWatchedFiles", changed)
    assert codes(editor.told(train)) == []
    settings.write_text("[tool.ddpify]\nignore = 5\n")
    editor.tell("workspace/didChangeWatchedFiles", changed)
    assert "ignore" in editor.message()
    settings.write_text("")
    editor.tell("workspace/didChangeWatchedFiles", changed)
    assert codes(editor.told(train)) == [("DDP201", ERROR)]
    settings.write_text('[tool.ddpify]\nexclude = ["train.py"]\n')
    editor.tell("workspace/didChangeWatchedFiles", changed)
    assert codes(editor.told(train)) == []


def test_launch_scripts_are_read_as_they_are_saved(editor: EditorClient, project: Path) -> None:
    script = project / "run.sh"
    script.write_text("python -m torch.distributed.launch --nproc_per_node 2 train.py\n")
    (found,) = editor.open(script)
    assert (found["code"], found["range"]["start"]["line"]) == ("DDP003", 0)
    offered = editor.actions(script, found["range"])
    assert not any(title.startswith("Silence") for title in offered)
    assert editor.type(script, f"# a line\n{editor.texts[script]}") == []
    assert [one["range"]["start"]["line"] for one in editor.save(script)] == [1]


def test_files_that_are_new_or_in_no_project_are_read(editor: EditorClient, tmp_path: Path) -> None:
    new = tmp_path.resolve() / "lonely" / "new.py"
    new.parent.mkdir()
    (new.parent / "below").mkdir()
    (new.parent / "below" / "other.py").write_text("print 1\n")
    assert codes(editor.open(new, TRAIN.replace("from net", "from nowhere"))) != []
    editor.tell(
        "textDocument/didOpen",
        {
            "textDocument": {
                "uri": "untitled:Untitled-1",
                "languageId": "python",
                "version": 1,
                "text": TRAIN,
            }
        },
    )
    hover = {"textDocument": {"uri": "untitled:Untitled-1"}, "position": dict(line=1, character=1)}
    assert editor.ask("textDocument/hover", hover) is None


def test_without_pygls_one_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [one for one in sys.modules if one.startswith("ddpify.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    assert cli.main(["server"]) == cli.FAILED
    assert capsys.readouterr().err == "ddpify: server needs pygls: pip install 'ddpify[server]'\n"
