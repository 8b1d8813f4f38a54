"""Reads TensorBoard's event files; run by the interpreter that trained, with its tensorboard.

``ddpify.verify.interpreter`` asks ``main`` for the files of one run, by their paths in its folder.
The answer has for each of their folders the scalars (step and value, by tag), and how many other
summaries of each kind there are; it is None where tensorboard is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def main(root: str, paths: list[str]) -> dict[str, dict[str, Any]] | None:
    try:
        event_files = import_module("tensorboard.backend.event_processing.event_file_loader")
        make_ndarray = import_module("tensorboard.util.tensor_util").make_ndarray
    except ImportError:
        return None
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(paths):
        folder = found.setdefault(str(Path(path).parent), {"scalars": {}, "others": {}})
        for step, tag, kind, tensor in _values(event_files.EventFileLoader(str(Path(root, path)))):
            if kind == "scalars":
                value = float(make_ndarray(tensor).item())
                folder["scalars"].setdefault(tag, []).append((step, value))
            elif kind:
                folder["others"][kind] = folder["others"].get(kind, 0) + 1
    return found


def _values(loader: Any) -> Iterator[tuple[int, str, str, Any]]:
    """The kind of a tag stands at its first value in each file."""
    kinds: dict[str, str] = {}
    for event in loader.Load():
        for value in event.summary.value:
            name = value.metadata.plugin_data.plugin_name
            kind = kinds.setdefault(value.tag, name) or name
            yield event.step, value.tag, kind, value.tensor
