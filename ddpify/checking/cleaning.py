"""The caches that ``check`` leaves, found and removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddpify.checking.cache import FOLDER, is_marked
from ddpify.checking.files import root_of
from ddpify.checking.model import CheckError
from ddpify.roots import SKIPPED


def caches(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Those below the folders, and of the projects that hold them."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise CheckError(f"{path}: no such folder")
        above = root_of(path.resolve() / FOLDER) / FOLDER
        found |= dict.fromkeys((*([above] if above.is_dir() else []), *_below(path.resolve())))
    return tuple(one for one in found if is_marked(one))


def remove(cache: Path) -> int:
    """Remove a cache: how many bytes it had. Raises CheckError."""
    size = sum(one.stat().st_size for one in cache.rglob("*") if one.is_file())
    try:
        shutil.rmtree(cache)
    except OSError as error:
        raise CheckError(f"{cache}: cannot be removed ({error.strerror})") from error
    return size


def _below(top: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(top):
        if FOLDER in names:
            yield Path(folder, FOLDER)
        names[:] = [one for one in names if one not in SKIPPED and not one.startswith(".")]
