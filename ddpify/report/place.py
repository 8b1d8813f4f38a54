"""A place in a file, as JSON reports write it."""

from __future__ import annotations

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
