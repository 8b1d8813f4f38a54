"""``--checkpoint sharded``: which lines write and read shards, and what is refused.

What the helpers write is shown by ``tests/runtime/test_sharded_checkpoints.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings, SettingsError, checked
from tests.projects import write

PROGRAM = """\
import copy
import os
import shutil
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def keep(state, path):
    torch.save(state, path)


def main(path="last.pt", epochs=2):
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
    loader = DataLoader(rows, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if os.path.exists(path):
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["adam"])
        first = kept["epoch"]
    for epoch in range(first, epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "adam": optimizer.state_dict(), "epoch": 1}, path)


if __name__ == "__main__":
    main()
"""
STATE = '{"model": model.state_dict(), "adam": optimizer.state_dict(), "epoch": 1}'
SAVE = f"        torch.save({STATE}, path)\n"
ASKED = "    if os.path.exists(path):\n"
LOAD = "        kept = torch.load(path)\n"
COPY = "        best = copy.deepcopy(model.state_dict())\n"


def outcome(tmp_path: Path, *changes: tuple[str, str], **chosen: object) -> Outcome:
    text = PROGRAM
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "main.py").write_text(text)
    settings = Settings(**{"strategy": "fsdp", "checkpoint": "sharded", **chosen})  # type: ignore[arg-type]
    return migrate([tmp_path / "main.py"], settings)


def migrated(tmp_path: Path, *changes: tuple[str, str], **chosen: object) -> str:
    found = outcome(tmp_path, *changes, **chosen)
    assert not found.refusals, found.refusals[0].message
    return next(one.after.decode() for one in found.changes if one.path == "main.py")


def refusal(tmp_path: Path, *changes: tuple[str, str]) -> str:
    found = outcome(tmp_path, *changes)
    assert found.refusals
    return " ".join(one.message for one in found.refusals)


def test_a_save_writes_the_states_as_they_are(tmp_path: Path) -> None:
    text = migrated(tmp_path)
    assert f"        save_sharded({STATE},\n" in text
    assert "unsharded(model).load_state_dict(kept" in text
    assert "kept = load_sharded(path, map_location=local_device())" in text
    assert ASKED in text


def test_a_save_may_be_written_as_the_run_goes_on(tmp_path: Path) -> None:
    text = migrated(tmp_path, checkpoint="sharded-async")
    assert "        async_save_sharded(\n" in text
    assert "kept = load_sharded(path, map_location=local_device())" in text
    write(outcome(tmp_path, checkpoint="sharded-async").changes, tmp_path)
    settings = Settings(strategy="fsdp", checkpoint="sharded-async")
    assert migrate([tmp_path / "main.py"], settings).changes == ()


def test_the_helpers_are_copied_where_they_are_called(tmp_path: Path) -> None:
    copies = [
        next(c.after.decode() for c in outcome(tmp_path, **chosen).changes if "utils" in c.path)
        for chosen in ({}, {"checkpoint": "whole"})
    ]
    assert ["def save_sharded(" in text for text in copies] == [True, False]
    assert ["distributed.checkpoint" in text for text in copies] == [True, False]


def test_again_there_is_nothing_to_do(tmp_path: Path) -> None:
    write(outcome(tmp_path).changes, tmp_path)
    settings = Settings(strategy="fsdp", checkpoint="sharded")
    again = migrate([tmp_path / "main.py"], settings)
    assert not again.refusals
    assert again.changes == ()


def test_a_state_reaches_the_save_by_names_and_helpers(tmp_path: Path) -> None:
    state = f"        state = {STATE}\n        state['best'] = 1.0\n"
    lines = f"{state}        keep(state, path)\n"
    text = migrated(tmp_path, (SAVE, lines))
    assert f"        state = {STATE}\n" in text
    assert "    save_sharded(state, path)\n" in text


def test_what_holds_no_state_stays_a_file_of_rank_0(tmp_path: Path) -> None:
    more = (SAVE, f'{SAVE}        torch.save({{"epoch": epoch}}, "told.pt")\n')
    assert 'save_on_main({"epoch": epoch}, "told.pt")' in migrated(tmp_path, more)


def test_a_state_that_is_kept_in_memory_is_whole(tmp_path: Path) -> None:
    text = migrated(tmp_path, (SAVE, f"{SAVE}{COPY}        model.load_state_dict(best)\n"))
    assert "best = copy.deepcopy(unsharded(model, everywhere=True).state_dict())" in text
    assert "save_sharded(" in text


@pytest.mark.parametrize(
    ("test", "now"),
    [
        ("os.path.isfile(path)", "os.path.exists(path)"),
        ("Path(path).is_file()", "Path(path).exists()"),
        ("os.path.isfile(os.environ['FROM'])", "os.path.exists(os.environ['FROM'])"),
    ],
)
def test_a_directory_is_no_file(tmp_path: Path, test: str, now: str) -> None:
    assert f"    if {now}:\n" in migrated(tmp_path, (ASKED, f"    if {test}:\n"))


def test_another_file_is_one(tmp_path: Path) -> None:
    asked = '    if os.path.isfile("begin.txt"):\n'
    assert asked in migrated(tmp_path, (ASKED, asked))
    read = "    notes = path + '.txt'\n    if os.path.isfile(notes):\n        open(notes).read()\n"
    assert "os.path.isfile(notes)" in migrated(tmp_path, (ASKED, f"{read}{ASKED}"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((SAVE, f"{SAVE}        shutil.copyfile(path, 'best.pt')\n"), "`shutil.copyfile` may"),
        ((SAVE, f"{SAVE}        os.remove(path)\n"), "`os.remove` may want a file"),
        ((SAVE, f"{COPY}        torch.save(best, path)\n"), "is used otherwise"),
        (
            (SAVE, f"        state = {STATE}\n        print(len(state['model']))\n"
             "        torch.save(state, path)\n"),
            "is used otherwise",
        ),
        (
            (SAVE, f"        with open(path, 'wb') as f:\n            torch.save({STATE}, f)\n"),
            "not to a file that is open",
        ),
    ],
    ids=["copied", "removed", "kept", "looked-at", "open"],
)  # fmt: skip
def test_what_wants_a_file_is_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    found = refusal(tmp_path, change)
    assert said in found
    assert "--checkpoint whole" in found


def test_it_goes_with_fsdp() -> None:
    with pytest.raises(SettingsError, match="checkpoint goes with strategy fsdp"):
        checked(Settings(checkpoint="sharded"), "")
    with pytest.raises(SettingsError, match='must be "whole", "sharded" or "sharded-async"'):
        checked(Settings(strategy="fsdp", checkpoint="half"), "")  # type: ignore[arg-type]
