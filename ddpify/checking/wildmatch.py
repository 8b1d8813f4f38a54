"""One line of a .gitignore as git reads it: which path it names, not what is below that path."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wcmatch import glob

_FLAGS = glob.GLOBSTAR | glob.DOTGLOB | glob.CASE | glob.FORCEUNIX
_IMPOSSIBLE = re.compile(r"//|(?:^|/)\.{1,2}(?:/|$)|\[[^\]]*$")


@dataclass(frozen=True)
class PatternLine:
    """A pattern; ``takes_back``: it began with an exclamation mark."""

    text: str
    path: re.Pattern[str]
    takes_back: bool
    folders_only: bool

    @property
    def matches_nothing(self) -> bool:
        """Whether there can be no such path: parts that are empty or lead up, open brackets."""
        return _IMPOSSIBLE.search(self.text) is not None

    def names(self, path: str, is_folder: bool) -> bool:
        """Whether the pattern is about ``path``, which begins at the folder of the patterns."""
        if self.folders_only and not is_folder:
            return False
        return self.path.fullmatch(path) is not None


def parsed(line: str) -> PatternLine | None:
    """What a line says; None: nothing, as it is blank or a comment."""
    text = re.sub(r"(?<!\\)\s+$", "", line)
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text[takes_back:]
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    if not text:
        return None
    return PatternLine(text, _regex(text), takes_back, folders_only)


def _regex(text: str) -> re.Pattern[str]:
    """A pattern with a slash begins at the top, another one at any depth."""
    depth = 0 if "/" in text else glob.MATCHBASE
    found, _ = glob.translate(text.removeprefix("/"), flags=_FLAGS | depth)
    return re.compile(found[0])
