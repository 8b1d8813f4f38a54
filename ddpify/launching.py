"""Launch lines of the entries: those that still start them with plain python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ddpify import discover, launchers, vendor
from ddpify.rules.base import Finding


def findings(root: Path, entries: Sequence[str] = ()) -> Iterator[Finding]:
    """A finding per line below ``root`` that does not start an entry with torchrun.

    ``entries`` are to be migrated now; the scripts that were migrated before count as well.
    """
    python = tuple(discover.python_files(root))
    files = tuple(p.relative_to(root).as_posix() for p in python)
    before = {path for path, file in zip(files, python, strict=True) if vendor.opens_session(file)}
    started = (*entries, *sorted(before - set(entries)))
    for path in launchers.discover(root, started):
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        yield from launchers.findings(path, text, started, "DDP002", files)
