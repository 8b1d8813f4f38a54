"""A place in a file, as JSON reports and the services that read reports want it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ddpify.notebooks import cell_of
from ddpify.rules.base import Finding
from ddpify.site import Site


def place(site: Site) -> dict[str, Any]:
    """Lines and columns from 1, as editors count; those of a notebook are of a cell."""
    span = site.span
    path, cell = cell_of(site.path)
    return {
        "path": path,
        **({"cell": cell} if cell is not None else {}),
        "line": span.line,
        "column": span.column + 1,
        "end_line": span.end_line,
        "end_column": span.end_column + 1,
    }


def from_top(path: str, variable: str) -> str:
    """From the top of the repository, where the service says by ``variable`` which that is."""
    path, _ = cell_of(path)
    top = os.environ.get(variable)
    file = Path(path).absolute()
    if top and file.is_relative_to(top):
        return file.relative_to(top).as_posix()
    return path


def said(found: Finding) -> str:
    """The message, with the cell where the path of a report can only be the notebook's."""
    _, cell = cell_of(found.site.path)
    return found.message if cell is None else f"cell {cell}: {found.message}"
