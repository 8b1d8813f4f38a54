"""One list of public names: the runtime's source, its package and ddpify's constants agree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import runtime
from ddpify.names import (
    COLLECTIVES,
    FITTED_NAMES,
    HEADER_PREFIX,
    METRICS_NAMES,
    RUNTIME_NAMES,
    SHARDS_NAMES,
    STORED_NAMES,
)

ROOT = Path(__file__).parents[2]
CORE, METRICS, SHARDS, STORED, FITTED = (
    (ROOT / "runtime" / f"{name}.py").read_text("utf-8")
    for name in ("ddp_utils", "ddp_metrics", "fsdp_utils", "fsdp_checkpoints", "trainer_utils")
)


def definitions(text: str = "") -> dict[str, str]:
    """Public functions and classes of one file of the runtime, or of all, with docstrings."""
    if not text:
        files = (definitions(one) for one in (CORE, METRICS, SHARDS, STORED, FITTED))
        return {name: said for found in files for name, said in found.items()}
    tree = ast.parse(text)
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {n.name: ast.get_docstring(n) or "" for n in found if not n.name.startswith("_")}


def test_names_are_the_public_definitions() -> None:
    assert set(definitions()) == RUNTIME_NAMES
    assert set(definitions(METRICS)) == METRICS_NAMES
    assert set(definitions(SHARDS)) == SHARDS_NAMES
    assert set(definitions(STORED)) == STORED_NAMES
    assert set(definitions(FITTED)) == FITTED_NAMES


def test_the_package_exports_them() -> None:
    assert sorted(RUNTIME_NAMES) == runtime.__all__
    assert all(hasattr(runtime, name) for name in RUNTIME_NAMES)


@pytest.mark.parametrize("name", sorted(RUNTIME_NAMES))
def test_collectives_say_so(name: str) -> None:
    assert ("(*collective*)" in definitions()[name]) == (name in COLLECTIVES)


def test_the_header_is_a_comment_that_the_original_lacks() -> None:
    assert HEADER_PREFIX.startswith("# ")
    assert not CORE.startswith(HEADER_PREFIX)
    assert not METRICS.startswith(HEADER_PREFIX)
