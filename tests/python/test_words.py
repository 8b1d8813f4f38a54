"""No qualified name of the vocabulary is written a second time, in a reader."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpify.python import words

PACKAGE = Path(words.__file__).parents[1]
FILES = sorted(file for name in ("facts", "ranks") for file in (PACKAGE / name).rglob("*.py"))
FILES.remove(PACKAGE / "ranks" / "interest.py")  # what a text says, to be looked for in it


def vocabulary() -> set[str]:
    """The qualified names: those with a dot."""
    held: set[str] = set()
    for value in vars(words).values():
        held |= {value} if isinstance(value, str) else set()
        parts = value if isinstance(value, (frozenset, tuple, dict)) else ()
        held |= {name for part in parts for name in (part if isinstance(part, tuple) else (part,))}
    return {name for name in held if "." in name.strip(".") and " " not in name}


def written(file: Path) -> Iterator[str]:
    """Every word of every text in a file, docstrings excluded."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    prose = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            yield from node.value.split()


def test_the_vocabulary_has_names() -> None:
    assert {"time.monotonic", "os.getpid", "torch.no_grad", "wandb.log"} <= vocabulary()


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_name_is_written_once(file: Path) -> None:
    again = vocabulary() & set(written(file))
    assert not again, f"write words.…, not {sorted(again)}"
