"""Both readers report every entry of the table of what writes: facts, and the ranks' reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.python import writers
from ddpify.rules.base import Example
from ddpify.rules.examples import BY_HAND, SINGLE, changed
from tests.projects import judged, put_example, read

PATHS = {name: place for name, place in writers.FUNCTIONS.items() if place is not None}
# What starts other programs, moves or removes, or writes to an open file, is each its own rule's.
WITHOUT_PATH = sorted(writers.FUNCTIONS.keys() - PATHS.keys())


def call(name: str, place: writers.Place) -> str:
    """A call that writes `out.bin`, by what it is imported as."""
    others = ["epoch"] * place[0]
    return f"{name}({', '.join([*others, repr('out.bin')])})"


def lines() -> dict[str, str]:
    """A statement for each entry that has a path, by its name."""
    found = {name: call(name, place) for name, place in PATHS.items()}
    found |= {f".{name}": call(f"epoch.{name}", at) for name, at in writers.METHODS.items()}
    found |= {f".{name}": f"pathlib.Path('out').{name}('1')" for name in writers.OF_PATHS}
    found[".open"] = "book = pathlib.Path('out').open('w')"
    found[".save"] = "PIL.Image.fromarray(epoch).save('out.png')"
    for name, mode in writers.OPENS.items():
        given = "'out.bin', 'w'" if mode else "'out.bin'"
        found[name] = f"book = {name.removeprefix('builtins.')}({given})"
    return found | {name: f"book = {name}('runs')" for name in writers.TRACKERS}


def imports(statements: list[str]) -> str:
    names = {s.split("= ")[-1].split("(")[0].rpartition(".")[0] for s in statements}
    modules = {n for n in names if n and not n.startswith(("epoch", "pathlib.Path", "PIL.Image"))}
    classes = {"tensorboard_logger", "aim", "clearml", "clearml.Task", "pathlib", "PIL.Image"}
    return "".join(f"import {name}\n" for name in sorted((modules | classes) - {"clearml.Task"}))


def reported(statements: list[str], found: set[int], text: str) -> set[str]:
    rows = text.splitlines()
    return {s for s in statements if any(rows[line - 1].strip() == s for line in found)}


def test_facts_report_every_entry(tmp_path: Path) -> None:
    statements = list(lines().values()) + [f"{name}(epoch)" for name in WITHOUT_PATH]
    block = "".join(f"        {s}\n" for s in statements)
    example = changed(
        SINGLE,
        ("import argparse\n", f"import argparse\n{imports(statements)}"),
        ("        net.train()\n", f"        epoch = round_\n{block}        net.train()\n"),
    )
    text = dict(example.files)["main.py"]
    found = judged(read(put_example(example, tmp_path)))
    sites = {f.site.span.line for f in found if f.rule in ("DDP502", "DDP504")}
    assert reported(statements, sites, text) == set(statements)


def test_the_reading_as_ranks_reports_every_entry_with_a_path(tmp_path: Path) -> None:
    statements = list(lines().values())
    example = _by_hand(statements)
    put_example(example, tmp_path)
    text = dict(example.files)["main.py"]
    found = lint(tmp_path, [tmp_path / "main.py"]).findings
    sites = {f.site.span.line for f in found if f.rule in ("DDP502", "DDP504")}
    connections = {one for one in statements if "visdom" in one}  # which write nothing themselves
    assert reported(statements, sites, text) == set(statements) - connections


def _by_hand(statements: list[str]) -> Example:
    block = "".join(f"    {s}\n" for s in statements)
    return changed(
        BY_HAND,
        ("import torch\n", f"{imports(statements)}import torch\n"),
        ("    gpu = int", f"    epoch = 3\n{block}    gpu = int"),
    )


@pytest.mark.parametrize("name", [*writers.OPENS])
def test_what_is_opened_to_be_read_writes_nothing(name: str) -> None:
    always = not writers.OPENS[name]
    assert writers.opens_to_write(name, "r") is always
    assert writers.opens_to_write(name, "w")
