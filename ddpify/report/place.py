"""A place in a file, as JSON reports and the services that read reports want it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ddpify.site import Site


def place(site: Site) -> dict[str, Any]:
    """Lines and columns from 1, as editors count."""
    span = site.span
    return {
        "path": site.path,
        "line": span.line,
        "column": span.column + 1,
        "end_line": span.end_line,
        "end_column": span.end_column + 1,
    }


def from_top(path: str, variable: str) -> str:
    """From the top of the repository, where the service says by ``variable`` which that is."""
    top = os.environ.get(variable)
    file = Path(path).absolute()
    if top and file.is_relative_to(top):
        return file.relative_to(top).as_posix()
    return path
