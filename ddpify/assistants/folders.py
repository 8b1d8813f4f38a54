"""The folders that a server was started for: an assistant is led nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddpify.roots import project_root


class Refused(Exception):
    """What was asked for is not done; the message is one sentence."""


class Confines:
    """One or several; what is named without a place is looked for in them, in this order."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.tops = tuple(folder.resolve() for folder in folders)

    def path(self, given: str) -> Path:
        """An absolute path in one of them, links followed; it need not be there.

        Raises Refused.
        """
        if not given or "\0" in given:
            raise Refused("a path is empty: name a file or a folder")
        candidates = [(top / given).resolve() for top in self.tops]
        inside = [one for one in candidates if self._holds(one)]
        if not inside:
            raise Refused(f"{given}: outside of {self}; nothing else is read or written")
        return next((one for one in inside if one.exists()), inside[0])

    def project(self, given: str) -> Path:
        """The same of a project that begins in one of them, for settings and helpers lie there."""
        path = self.path(given)
        root = project_root(path / "_" if path.is_dir() else path)
        if not self._holds(root.resolve()):
            raise Refused(f"{given}: its project begins at {root}, outside of {self}")
        return path

    def top(self, path: Path) -> Path:
        """The one that a path is in."""
        return next(top for top in self.tops if path.is_relative_to(top))

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(top) for top in self.tops)

    def __str__(self) -> str:
        named = ", ".join(map(str, self.tops))
        return f"{named}, which `ddpify mcp` was started for"
