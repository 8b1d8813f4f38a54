"""The code blocks of a Markdown file that are shell, without their prompts.

Sources: the CommonMark specification (read by markdown-it); a prompt is what shells show by
default, and where one stands, the lines without are what the programs said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ddpify.launchers.embedded import Chars, EmbeddedPiece
from ddpify.launchers.script import line_starts

_SHELL = frozenset(
    "bash sh shell zsh console shell-session shellsession sh-session terminal".split()
)
_PROMPT = re.compile(
    r"\s*(?:\([\w.-]+\)\s*)?(?:\[?[\w.-]+@[\w.-]+[^$#%>]{0,40})?[$%\u276f\u279c](?:\s+|$)|\s*>\s+(?=\S)"
)
_STANDS_FOR = re.compile(r"<[A-Za-z/~][\w ./|-]*>")


def pieces(path: str, text: str) -> tuple[EmbeddedPiece, ...]:
    """The shell in the fenced and indented code blocks; loads markdown-it."""
    from markdown_it import MarkdownIt

    # links are of no interest, and bytes that are no UTF-8 are none for their reader
    reader = MarkdownIt("commonmark").disable(["reference", "inline", "text_join"])
    starts = line_starts(text)
    found = []
    for token in reader.parse(text):
        language = _language(token.info)
        if token.type not in ("fence", "code_block") or token.map is None:
            continue
        if language and language not in _SHELL:
            continue
        first = token.map[0] + (token.type == "fence")
        lines = _placed(text, starts, first, token.content)
        if lines is not None:
            found.append(_piece(path, text, lines, bool(language)))
    return tuple(found)


def _language(info: str) -> str:
    """`bash` of `bash`, `{.bash}`, `bash title="…"`; "" where none is said."""
    words = info.strip().strip("{}").replace(",", " ").split()
    return words[0].lstrip(".").lower() if words else ""


def _placed(
    text: str, starts: tuple[int, ...], first: int, content: str
) -> list[tuple[int, str]] | None:
    """The lines of a block with their offsets; None where the block was not taken as it is."""
    placed = []
    for number, line in enumerate(content.split("\n")[:-1]):
        begin = starts[first + number]
        end = starts[first + number + 1] if first + number + 1 < len(starts) else len(text)
        whole = text[begin:end].rstrip("\r\n")
        if not whole.endswith(line):
            return None
        placed.append((begin + len(whole) - len(line), line))
    return placed


def _piece(path: str, text: str, lines: list[tuple[int, str]], tagged: bool) -> EmbeddedPiece:
    prompts = any(_PROMPT.match(line) for _, line in lines)
    chars: Chars = []
    for at, line in _commands(lines) if prompts else lines:
        shown = _STANDS_FOR.sub(lambda found: "_" * len(found.group()), line)
        chars += [(char, n, n + 1) for n, char in enumerate(shown, at)]
        chars.append(("\n", at + len(line), at + len(line)))
    inside = any(at and text[at - 1] not in "\r\n" for at, _ in lines)
    piece = EmbeddedPiece.of(path, text, chars)
    return replace(piece, lines=not (prompts or inside), brief=True, certain=tagged or prompts)


def _commands(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The typed commands: the lines behind a prompt and their continuations."""
    continued = False
    for at, line in lines:
        prompt = _PROMPT.match(line)
        if prompt is None and not continued:
            continue
        skip = prompt.end() if prompt is not None else 0
        yield at + skip, line[skip:]
        continued = line.endswith("\\")
