"""The commands that README and the pages of docs/ show, and what is said of them.

A page names the project that its commands are run in, a folder of fixtures/:
``<!-- project: classification -->``. A block with a title is a file that they find
there. Behind a block that cannot be run stands why: ``<!-- not run: … -->``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_PROJECT = re.compile(r"<!-- project: (\w+) -->")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_TITLE = re.compile(r'title="([^"]+)"')
_GAP = "…"


@dataclass(frozen=True)
class Command:
    """One of them; ``shown`` is what the page says that it prints, None if it says nothing."""

    arguments: tuple[str, ...]
    shown: str | None = None

    def prints(self, output: str) -> bool:
        """Whether this is what it prints; a line of … stands for any, … at an end for any text."""
        if self.shown is None:
            return True
        lines = self.shown.splitlines()
        parts = (r"(?:.*\n)*?" if line == _GAP else _line(line) for line in lines)
        return re.fullmatch("".join(parts), output) is not None


@dataclass(frozen=True)
class ShownPage:
    """A page: its project, the files and commands in it."""

    path: Path
    project: str
    files: dict[str, str]
    commands: tuple[Command, ...]


def page(path: Path) -> ShownPage:
    """Read it; blocks that are not run are left out."""
    text = path.read_text("utf-8")
    project = _PROJECT.search(text)
    tokens = MarkdownIt("commonmark").parse(text)
    blocks = [one for one, after in pairwise((*tokens, None)) if one and _is_run(one, after)]
    titled = {m[1]: one.content for one in blocks if (m := _TITLE.search(one.info))}
    commands = tuple(command for one in blocks for command in _commands(one))
    return ShownPage(path, project[1] if project else "", titled, commands)


def _is_run(token: Token, after: Token | None) -> bool:
    said = after is not None and after.type == "html_block" and _NOT_RUN.search(after.content)
    return token.type == "fence" and not said


def _commands(block: Token) -> Iterator[Command]:
    if block.info.startswith("console"):
        for part in re.split(r"^\$ ", block.content, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            yield from (Command(given, shown) for given in _ddpify(line))
    elif block.info in ("bash", "sh", "diff"):
        for line in block.content.replace("\\\n", "").splitlines():
            yield from (Command(given) for given in _ddpify(line))


def _ddpify(line: str) -> Iterator[tuple[str, ...]]:
    words = shlex.split(line, comments=True) if line.startswith("ddpify ") else []
    if words:
        yield tuple(words[1:])


def _line(text: str) -> str:
    cut = text.endswith(_GAP)
    return re.escape(text.removesuffix(_GAP)) + (".*" if cut else "") + r"\n"
