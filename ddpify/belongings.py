"""What of a folder belongs to a project, and what is too large to be copied with it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MANY: Final = 2000  # files; folders of more without code are data
# A folder is taken for data when this many files were seen and none of them was code.
ENOUGH: Final = 10 * MANY
CACHES: Final = frozenset(
    "__pycache__ node_modules .mypy_cache .pytest_cache .ruff_cache .tox .nox .ipynb_checkpoints"
    " .DS_Store .ddpify .ddpify_cache".split()
)
LEFT_OUT: Final = CACHES | {".git", ".hg", ".svn"}
ENVIRONMENTS: Final = ("pyvenv.cfg", "conda-meta")  # what only the folder of one holds
_SMALL: Final = 8 << 20  # bytes; what is larger is not copied, save code
_MOST: Final = 10_000  # files; a folder that holds more is not that of one project
_OUTPUTS: Final = frozenset(
    "runs output outputs log logs tb_logs lightning_logs wandb mlruns checkpoint checkpoints ckpt"
    " ckpts results tensorboard".split()
)
_MODELS: Final = (".pt", ".pth", ".ckpt", ".safetensors")


def left_out(path: Path) -> bool:
    """Whether a file or folder is no part of the project: history, a cache, an environment."""
    return path.name in LEFT_OUT or any((path / mark).exists() for mark in ENVIRONMENTS)


def is_data(folder: Path) -> bool:
    """Many files, and no code among them."""
    count = 0
    for _, folders, files in os.walk(folder):
        if any(name.endswith(".py") for name in files):
            return False
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        count += len(files)
        if count > ENOUGH:
            break
    return count > MANY


def aim(link: Path, root: Path) -> str:
    """Where the copy of a link points: into the copy, if the link points into the project."""
    text = os.readlink(link)
    goal = os.path.join(link.parent, text)
    if not Path(os.path.normpath(goal)).is_relative_to(root):
        return goal
    return os.path.relpath(goal, link.parent) if os.path.isabs(text) else text


class TooMany(Exception):
    """The folder holds so much that it is not one project's."""


@dataclass
class Belongings:
    """Relative paths: copied, empty folders, links with their aims, and what is not copied:
    large data and outputs, and what is no part of the project.
    """

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def belongings(root: Path, without: Path, tracked: frozenset[str]) -> Belongings:
    """What a complete copy of the project at ``root`` has, save the folder ``without``.

    Large data are linked to: they are read. Large outputs are left out: a program that writes
    them again would write through a link into the original. What git tracks is copied.

    Raises:
        TooMany: this is no project.
    """
    found = Belongings()
    _gather(root, root, without, tracked, found)
    return found


def _gather(
    root: Path, folder: Path, without: Path, tracked: frozenset[str], found: Belongings
) -> None:
    entries = sorted(folder.iterdir())
    if not entries:
        found.folders.append(folder.relative_to(root).as_posix())
    for path in entries:
        name = path.relative_to(root).as_posix()
        if path == without or path.name in CACHES:
            continue
        if left_out(path):
            found.left.append(name)
        elif path.is_symlink():
            found.links[name] = aim(path, root)
        elif path.is_dir():
            if is_data(path) and not without.is_relative_to(path):
                _too_large(f"{name}/", found)
            else:
                _gather(root, path, without, tracked, found)
        elif path.is_file():
            _gather_file(path, name, name in tracked, found)


def _gather_file(path: Path, name: str, tracked: bool, found: Belongings) -> None:
    if tracked or path.suffix == ".py" or path.stat().st_size <= _SMALL:
        found.files.append(name)
    else:
        _too_large(name, found)
    if len(found.files) > _MOST:
        raise TooMany


def _too_large(name: str, found: Belongings) -> None:
    (found.outputs if _is_output(name) else found.data).append(name)


def _is_output(name: str) -> bool:
    parts = name.lower().rstrip("/").split("/")
    if _OUTPUTS & set(parts):
        return True
    return name.endswith(_MODELS) and not any(part.startswith("data") for part in parts)
