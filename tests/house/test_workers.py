"""The workers of the suite: a file's tests share what was made for them once."""

from __future__ import annotations

import pytest


def test_a_file_is_one_workers(request: pytest.FixtureRequest) -> None:
    """pytest-xdist writes the group behind the name (under pytest 9.2 it did not any more)."""
    if request.config.getoption("loadgroup", default=False):  # of a worker of `make pytest`
        assert request.node.nodeid.endswith(f"@{request.path.as_posix()}")
