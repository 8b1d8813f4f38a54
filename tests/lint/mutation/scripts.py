"""The correct scripts that are mutated: a file each, or a folder whose ``train.py`` is run."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "programs"


def scripts() -> dict[str, dict[str, str]]:
    """Each project by its name: its files, the one that is run first."""
    return {path.stem: _files(path) for path in sorted(_FOLDER.iterdir()) if _is_project(path)}


def _is_project(path: Path) -> bool:
    return path.suffix == ".py" or (path / "train.py").exists()


def _files(path: Path) -> dict[str, str]:
    if path.is_file():
        return {path.name: path.read_text()}
    names = sorted(path.glob("*.py"), key=lambda file: (file.stem != "train", file.name))
    return {file.name: file.read_text() for file in names}


def write(files: dict[str, str], folder: Path) -> Path:
    """Write a project into a folder; what is run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / next(iter(files))
