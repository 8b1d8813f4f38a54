"""What .gitignore files leave out: the nearest file decides, as in git."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify.checking.model import CheckError
from ddpify.checking.wildmatch import PatternLine, parsed

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_WHY = (
    " (patterns are those of a .gitignore, from this folder; `!` takes back what one before names)"
)


@dataclass(frozen=True)
class Patterns:
    """The lines of one .gitignore; ``folder`` is where it stands, as an absolute posix path."""

    folder: str
    lines: tuple[PatternLine, ...]

    def says(self, path: str, is_folder: bool) -> bool | None:
        """Whether ``path``, whose folder is not left out, is; None: they are not about it."""
        if not path.startswith(self.folder):
            return None
        relative = path[len(self.folder) :].lstrip("/")
        found = (one for one in reversed(self.lines) if one.names(relative, is_folder))
        return next((not one.takes_back for one in found), None)

    def cover(self, path: str, is_folder: bool = False) -> bool:
        """Whether the patterns leave out ``path``, or a folder that holds it."""
        inner = path.removeprefix(self.folder).strip("/").split("/")
        folders = ("/".join((self.folder, *inner[:n])) for n in range(1, len(inner)))
        return any(self.says(one, True) for one in folders) or bool(self.says(path, is_folder))


@dataclass(frozen=True)
class Ignored:
    """The patterns that hold in a folder, those of the nearest file last.

    What ``always`` names is left out whatever a .gitignore says.
    """

    stack: tuple[Patterns, ...] = ()
    always: tuple[Patterns, ...] = ()

    def below(self, folder: str) -> Ignored:
        """With those of the .gitignore in ``folder``, if there is one."""
        found = _read(Path(folder, ".gitignore"), folder)
        return replace(self, stack=(*self.stack, found)) if found else self

    def leaves_out(self, path: str, is_folder: bool) -> bool:
        """Whether ``path``, whose folder is not left out, is."""
        if any(patterns.says(path, is_folder) for patterns in self.always):
            return True
        said = (patterns.says(path, is_folder) for patterns in reversed(self.stack))
        return next((one for one in said if one is not None), False)


def above(folder: Path, always: tuple[Patterns, ...] = ()) -> Ignored:
    """What holds for ``folder`` itself: the files of the repository's folders down to it."""
    chain = [folder, *folder.parents]
    top = next((n for n, one in enumerate(chain) if (one / ".git").exists()), None)
    if top is None:
        return Ignored(always=always)
    repository = chain[top]
    own = _read(repository / ".git" / "info" / "exclude", repository.as_posix())
    ignored = Ignored((own,) if own else (), always)
    for one in reversed(chain[1 : top + 1]):
        ignored = ignored.below(one.as_posix())
    return ignored


def matching(patterns: Iterable[str], folder: Path, said: str = "") -> Patterns:
    """Patterns of a project's settings, or of what ``said`` them, read as a .gitignore in
    ``folder``.

    Besides, ``{a,b}`` stands for both, and paths may begin with ``./`` or be absolute.

    Raises:
        CheckError: a pattern would never match, so that something else was meant.
    """
    lines: list[PatternLine] = []
    for pattern in patterns:
        for one in _alternatives(pattern):
            line = parsed(_relative(one, folder.as_posix()))
            if line is None or line.matches_nothing or (line.takes_back and not lines):
                where = said or folder / "pyproject.toml"
                raise CheckError(f"{where}: no file matches {pattern!r}{_WHY}")
            lines.append(line)
    return Patterns(folder.as_posix(), tuple(lines))


def _alternatives(pattern: str) -> list[str]:
    """The patterns that one with braces stands for."""
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    parts = found[1].split(",")
    return [one for part in parts for one in _alternatives(f"{before}{part}{after}")]


def _relative(pattern: str, folder: str) -> str:
    mark = "!" if pattern.startswith("!") else ""
    path = pattern.removeprefix(mark)
    if path.startswith(f"{folder}/"):
        return mark + path.removeprefix(folder)
    return mark + path.removeprefix(".") if path.startswith("./") else pattern


def _read(file: Path, folder: str) -> Patterns | None:
    try:
        lines = file.read_text("utf-8-sig", "surrogateescape").split("\n")
    except OSError:
        return None
    found = _patterns(lines, folder)
    return found if found.lines else None


def _patterns(lines: Iterable[str], folder: str) -> Patterns:
    return Patterns(folder, tuple(one for one in map(parsed, lines) if one))
