"""One line of a .gitignore as git reads it: which path it names, not what is below that path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<many>\*+)|(?P<one>\?)|\\(?P<quoted>.)"
    r"|\[(?P<not>[!^]?)(?P<any>\]?(?:\[:\w+:\]|\\.|[^\]\\])*)\]|(?P<plain>[^\[\\])"
)
_MEMBER = re.compile(r"\[:(?P<kind>\w+):\]|\\?(?P<low>.)(?:-\\?(?P<high>[^\]]))?", re.DOTALL)
_KINDS = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "a-fA-F0-9",
}
_NEVER = r"(?!)"
_IMPOSSIBLE = re.compile(r"\(\?!\)|//|(?:^|/)(?:\\\.){1,2}(?:/|$)")


@dataclass(frozen=True)
class Line:
    """A pattern; ``takes_back``: it began with an exclamation mark."""

    path: re.Pattern[str]
    takes_back: bool
    folders_only: bool

    @property
    def matches_nothing(self) -> bool:
        """Whether there can be no such path: parts that are empty or lead up, open brackets."""
        return _IMPOSSIBLE.search(self.path.pattern) is not None

    def names(self, path: str, is_folder: bool) -> bool:
        """Whether it is about ``path``, which begins at the folder of the patterns."""
        if self.folders_only and not is_folder:
            return False
        return self.path.fullmatch(path) is not None


def parsed(line: str) -> Line | None:
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
    return Line(_regex(text), takes_back, folders_only)


def _regex(text: str) -> re.Pattern[str]:
    """A pattern with a slash begins at the top, another one at any depth."""
    if "/" not in text:
        return _compiled("(?:.*/)?" + _segment(text))
    return _compiled("".join(_joined(text.removeprefix("/").split("/"))))


def _joined(segments: list[str]) -> Iterator[str]:
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == "**":
            yield ".+" if last else "(?:.*/)?"
        else:
            yield _segment(segment) + ("" if last else "/")


def _segment(text: str) -> str:
    """A part without a slash. What git cannot read either names nothing."""
    found = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return _NEVER
        found.append(_piece(token))
        at = token.end()
    return "".join(found)


def _piece(token: re.Match[str]) -> str:
    if token["many"]:
        return "[^/]*"
    if token["one"]:
        return "[^/]"
    if token["any"] is not None:
        return _choice(token["any"], bool(token["not"]))
    return re.escape(token["quoted"] or token["plain"])


def _choice(members: str, other: bool) -> str:
    """The characters in brackets."""
    found = "".join(map(_members, _MEMBER.finditer(members)))
    if other:
        return f"[^/{found}]"
    return f"(?!/)[{found}]" if found else _NEVER


def _members(one: re.Match[str]) -> str:
    if one["kind"]:
        return _KINDS.get(one["kind"], "")
    if not one["high"]:
        return re.escape(one["low"])
    in_order = one["low"] <= one["high"]
    return f"{re.escape(one['low'])}-{re.escape(one['high'])}" if in_order else ""


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)
