"""What .gitignore files leave out: the nearest file decides, as in git."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec


@dataclass(frozen=True)
class Patterns:
    """The lines of one .gitignore; ``folder`` is where it stands, as an absolute posix path."""

    folder: str
    spec: GitIgnoreSpec

    def says(self, path: str, is_folder: bool) -> bool | None:
        """Whether ``path`` is left out; None: not a matter of these patterns."""
        if not path.startswith(self.folder):
            return None
        relative = path[len(self.folder) :].lstrip("/")
        return self.spec.check_file(f"{relative}/" if is_folder else relative).include


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


def matching(patterns: Sequence[str], folder: Path) -> Patterns:
    """Patterns of a project's settings, read as a .gitignore in ``folder``."""
    return Patterns(folder.as_posix(), GitIgnoreSpec.from_lines(patterns))


def _read(file: Path, folder: str) -> Patterns | None:
    try:
        lines = file.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    kept = [line for line in lines if line.strip() and not line.startswith("#")]
    if not kept:
        return None
    try:
        return Patterns(folder, GitIgnoreSpec.from_lines(kept))
    except ValueError:  # a pattern that git does not know either
        return _lenient(kept, folder)


def _lenient(lines: Sequence[str], folder: str) -> Patterns:
    """The lines that are patterns; git passes over the others."""
    good = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        good.append(line)
    return Patterns(folder, GitIgnoreSpec.from_lines(good))
