"""The workers of the suite: a file's tests share what was made for them once."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
def test_a_file_is_one_workers(request: pytest.FixtureRequest) -> None:
    """pytest-xdist writes the group behind the name (under pytest 9.2 it did not any more)."""
    assert request.node.nodeid.endswith(f"@{request.path.as_posix()}")
