"""Launch lines of the entries: those that still start them with plain python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ddpify import discover, launchers, vendor
from ddpify.rules.base import Finding

_ALL = re.compile(r"(?<=--nproc_per_node=)gpu|(?<=NPROC_PER_NODE:-)gpu")


def findings(
    root: Path, entries: Sequence[str] = (), lone: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """A finding per line below ``root`` that does not start an entry with torchrun.

    ``entries`` are to be migrated now; the scripts that were migrated before count as well.
    ``lone`` are the places of lines that start one process, with the reason.
    """
    python = tuple(discover.python_files(root))
    files = tuple(p.relative_to(root).as_posix() for p in python)
    copies = [file for file in python if vendor.is_core(file)]
    opens = (vendor.opens_session(file, copies) for file in python)
    before = {path for path, opened in zip(files, opens, strict=True) if opened}
    started = (*entries, *sorted(before - set(entries)))
    for path in launchers.discover(root, started):
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        for found in launchers.findings(path, text, started, "DDP002", files):
            why = (lone or {}).get(str(found.site))
            yield _on_one(found, why) if why is not None else found


def _on_one(found: Finding, why: str) -> Finding:
    """The line with one process."""
    fix = tuple(replace(one, code=_ALL.sub("1", one.code)) for one in found.fix)
    return replace(found, fix=fix, message=f"{found.message}; {why}")
