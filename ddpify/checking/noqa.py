"""``--add-noqa``: a comment at each finding, so that a project can begin without fixing all."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpify.checking.suppress import joined

if TYPE_CHECKING:
    from ddpify.launchers.script import Script

_CODES = r"[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*"
_NOQA = re.compile(rf"#\s*noqa\s*:\s*(?P<codes>{_CODES})", re.IGNORECASE)


def with_noqa(text: str, codes: Mapping[int, Iterable[str]]) -> tuple[str, int]:
    """The text with ``codes`` (by line) silenced, and how many comments were written or grew.

    Codes that are in a comment already stay; a line in which no comment can stand, inside a text or
    before a backslash, has it at the end of its statement.
    """
    lines = list(io.StringIO(text, newline=""))
    ends, comments = _read(text)
    wanted: dict[int, list[str]] = {}
    for line, new in codes.items():
        wanted.setdefault(ends.get(line, line), []).extend(new)
    written = 0
    for line, new in wanted.items():
        changed = _line(lines[line - 1], comments.get(line), sorted(set(new)))
        written += changed != lines[line - 1]
        lines[line - 1] = changed
    return "".join(lines), written


@dataclass(frozen=True)
class Shell:
    """The text of a shell script, silenced, and the lines of commands behind which no comment
    can stand (they end within a text)."""

    text: str
    count: int
    left: tuple[int, ...]


def in_shell(path: str, text: str, codes: Mapping[int, Iterable[str]]) -> Shell:
    """As ``with_noqa`` for a shell script: the comment stands behind a command's last line.

    It is written only where the shell reads the same commands as before.
    """
    from ddpify.launchers.script import Script

    count, left = 0, []
    for line, new in sorted(codes.items()):
        script = Script.parse(path, text)
        lines = list(io.StringIO(text, newline=""))
        _, last = joined(lines)[line - 1]
        before = lines[last - 1]
        lines[last - 1] = _line(before, _shell_comments(script).get(last), sorted(set(new)))
        changed = Script.parse(path, "".join(lines))
        if last in _shell_comments(changed) and _commands(changed) == _commands(script):
            count += lines[last - 1] != before
            text = changed.text
        else:
            left.append(line)
    return Shell(text, count, tuple(left))


def _shell_comments(script: Script) -> dict[int, int]:
    """The columns in which comments begin, by line."""
    from ddpify.launchers.script import nodes

    found = (one for one in nodes(script.root) if one.type == "comment")
    spans = (script.span(one.start_byte, one.end_byte) for one in found)
    return {span.line: span.column for span in spans}


def _commands(script: Script) -> list[list[str]]:
    return [[word.text for word in one.words] for one in script.commands]


def _line(line: str, comment: int | None, codes: list[str]) -> str:
    """``comment``: the column where the line's comment begins; what is before it is code."""
    body = line.rstrip("\r\n")
    end = line[len(body) :]
    match = _NOQA.search(body, comment) if comment is not None else None
    if match is None:
        return f"{body.rstrip()}  # noqa: {', '.join(codes)}{end}"
    there = re.findall(r"[A-Z]+[0-9]+", match["codes"].upper())
    more = [code for code in codes if code not in there]
    if not more:
        return line
    at = match.end("codes")
    return f"{body[:at]}, {', '.join(more)}{body[at:]}{end}"


def _read(text: str) -> tuple[dict[int, int], dict[int, int]]:
    """For each line in which no comment can stand the next one in which one can; and the columns
    in which the comments begin, by line."""
    waiting: list[int] = []
    found: dict[int, int] = {}
    comments: dict[int, int] = {}
    seen = 0
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        waiting += [n for n in range(seen + 1, token.end[0] + 1)]
        seen = max(seen, token.end[0])
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.start[1]
        elif token.type in (tokenize.NEWLINE, tokenize.NL):
            found |= dict.fromkeys(waiting, token.start[0])
            waiting = []
    return found, comments
