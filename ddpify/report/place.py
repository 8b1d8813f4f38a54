"""A place in a file, as JSON reports and the services that read reports want it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ddpify.notebooks import cell_of
from ddpify.site import Site, Span


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


def in_file(site: Site) -> Span:
    """Where it stands in the file itself: of a notebook, which is JSON, that is the beginning."""
    _, cell = cell_of(site.path)
    return site.span if cell is None else Span(1, 0, 1, 0)


def said(site: Site, message: str) -> str:
    """A message, with cell and line where a report can only name the notebook and its lines."""
    _, cell = cell_of(site.path)
    return message if cell is None else f"cell {cell}, line {site.span.line}: {message}"
