"""Comments that silence findings: ``# ddpify: ignore[CODE]`` and ``# noqa: CODE``.

A comment counts for the logical line it stands in, so that one behind the last bracket of a call
silences what is said of its first line; ``# ddpify: ignore-file`` counts for the whole file.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ddpify.checking.codes import OFF, UNUSED, known
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.site import Site, Span

_CODE = r"(?:[A-Za-z]+[0-9]+|DDP\b)"
_OWN_CODE = "DDP[0-9]+"
_COMMENT = re.compile(
    r"#\s*(?:ddpify:\s*(?P<own>ignore(?:-file)?)"
    r"(?:\s*\[(?P<ignored>[^\]]*)\]"
    rf"|\s*:?\s*(?P<unbracketed>{_OWN_CODE}(?:[\s,]+{_OWN_CODE})*)"
    r"|(?P<odd>[\w-]+|\s*[:\[])?)"
    rf"|noqa(?![\w-]|\s*:)|noqa\s*:\s*(?P<noqa>{_CODE}(?:[\s,]+{_CODE})*))",
    re.IGNORECASE,
)
_ALL, _EVERY = "ALL", "DDP"
_FILE = "ignore-file"
_SKIPPED = frozenset((tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING))


@dataclass(frozen=True)
class Comment:
    """One such comment: where it stands, the lines it counts for, and its codes (None: all).

    ``own``: the word of ddpify's own form; ``odd``: it is not written as one that is understood.
    """

    span: Span
    first: int
    last: int
    own: str
    codes: tuple[str, ...] | None
    odd: bool = False

    def silences(self, finding: Finding) -> bool:
        """Whether the comment is about this finding."""
        here = self.first <= finding.site.span.line <= self.last
        return here and (self.codes is None or finding.rule.startswith(self.codes))


def comments(text: str, python: bool = True) -> tuple[Comment, ...]:
    """All of a file; in a launcher they are about the lines of the command they stand in."""
    if python:
        return tuple(_of_tokens(text))
    lines = list(io.StringIO(text, newline=""))
    found = (
        _comment(match, (number, 0), *lines_of)
        for number, (line, lines_of) in enumerate(zip(lines, joined(lines), strict=True), 1)
        for match in _COMMENT.finditer(line)
    )
    return tuple(found)


def joined(lines: Sequence[str]) -> list[tuple[int, int]]:
    """For each line of a launcher the first and the last of those that backslashes make one."""
    found: list[tuple[int, int]] = []
    for number, line in enumerate(lines, 1):
        body = line.rstrip("\r\n")
        slashes = len(body) - len(body.rstrip("\\"))
        goes_on = slashes % 2 and not body.lstrip().startswith("#") and number < len(lines)
        if not goes_on:
            found += [(len(found) + 1, number)] * (number - len(found))
    return found


def silenced(
    path: str, text: str, findings: Sequence[Finding], on: Callable[[str], bool], python: bool
) -> tuple[list[Finding], list[Finding]]:
    """(findings that are not silenced, comments that silence nothing) of one file.

    ``on``: whether a rule is switched on here; of others it is not known what they would find.
    """
    found = comments(text, python)
    kept = [one for one in findings if not any(c.silences(one) for c in found)]
    lines = list(io.StringIO(text, newline=""))
    unused = [one for c in found for one in _unused(path, lines, c, findings, on)]
    return kept, [one for one in unused if not any(_meant(c, one) for c in found)]


def _meant(comment: Comment, finding: Finding) -> bool:
    """Whether an unused comment is to stay: only one that says so by the code, or all of a file
    in which another one is for everything."""
    if comment.codes is None:
        return comment.own == _FILE and comment.span != finding.site.span
    return UNUSED in comment.codes and comment.silences(finding)


def _unused(
    path: str,
    lines: Sequence[str],
    comment: Comment,
    findings: Sequence[Finding],
    on: Callable[[str], bool],
) -> Iterator[Finding]:
    here = [f.rule for f in findings if comment.first <= f.site.span.line <= comment.last]
    if comment.codes is None:
        if comment.own and not here and all(on(code) for code in known() if code not in OFF):
            yield _finding(path, lines, comment, (), "nothing is wrong here that it could silence")
        return
    if not comment.codes:
        why = (
            f"it is not written `# ddpify: {comment.own}[CODE]`"
            if comment.odd
            else "it names no rule"
        )
        yield _finding(path, lines, comment, (), why)
        return
    idle = tuple(code for code in comment.codes if _is_idle(code, comment, here, on))
    unknown = [code for code in idle if not any(one.startswith(code) for one in known())]
    if unknown:
        yield _finding(path, lines, comment, idle, f"no rule has the code {unknown[0]}")
    elif idle:
        verb = "finds" if len(idle) == 1 else "find"
        yield _finding(path, lines, comment, idle, f"{', '.join(idle)} {verb} nothing here")


def _is_idle(code: str, comment: Comment, here: Sequence[str], on: Callable[[str], bool]) -> bool:
    """Whether this code of ours silences nothing, and would if there were something."""
    if code == UNUSED or not (comment.own or code.startswith("DDP")):
        return False
    about = [one for one in known() if one.startswith(code) and (one == code or one not in OFF)]
    return all(map(on, about)) and not any(rule.startswith(code) for rule in here)


def _finding(
    path: str, lines: Sequence[str], comment: Comment, idle: tuple[str, ...], why: str
) -> Finding:
    left = [code for code in comment.codes or () if code not in idle]
    site = Site(path, comment.span)
    line = lines[comment.span.line - 1]
    return Finding(
        UNUSED,
        site,
        f"unused suppression: {why}",
        Severity.WARNING,
        () if comment.odd else _removal(site, line, left, comment.own),
        "write it so" if comment.odd else "remove it, lest it hides the next finding",
    )


def _removal(site: Site, line: str, left: Sequence[str], own: str) -> tuple[Edit, ...]:
    """The comment goes, or its idle codes; one in a line of its own is left to the user."""
    span = site.span
    if left:
        listed = ", ".join(left)
        code = f"# ddpify: {own}[{listed}]" if own else f"# noqa: {listed}"
        return (Edit(How.TEXT, site, code),)
    before, after = line[: span.column], line[span.end_column :].strip()
    if after and not after.startswith("#"):
        return (Edit(How.TEXT, site, "#"),)
    if not before.strip():
        return ()
    start = len(before.rstrip()) if not after else span.column
    end = span.end_column if not after else line.index("#", span.end_column)
    return (Edit(How.TEXT, Site(site.path, Span(span.line, start, span.line, end)), ""),)


def _of_tokens(text: str) -> Iterator[Comment]:
    first = 0  # of the logical line that is being read; 0: none is
    pending: list[tuple[re.Match[str], tuple[int, int]]] = []
    for token in _tokens(text):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            matches = ((match, token.start) for match in _COMMENT.finditer(token.string))
            if first:
                pending += matches
            else:
                yield from (_comment(match, at, line, line) for match, at in matches)
        elif token.type == tokenize.NEWLINE:
            yield from (_comment(match, at, first or line, line) for match, at in pending)
            first, pending = 0, []
        elif token.type not in _SKIPPED:
            first = first or line


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """As far as the file can be read."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    except (tokenize.TokenError, SyntaxError):
        return


def _comment(match: re.Match[str], at: tuple[int, int], first: int, last: int) -> Comment:
    line, column = at
    span = Span(line, column + match.start(), line, column + match.end())
    own = (match["own"] or "").lower()
    if own == _FILE:
        first, last = 0, sys.maxsize
    odd = match["odd"] is not None
    return Comment(span, first, last, own, () if odd else _codes(match), odd)


def _codes(match: re.Match[str]) -> tuple[str, ...] | None:
    """Those it lists, in ddpify's own brackets whatever they are; None: it lists none."""
    if match["ignored"] is not None:
        words = re.findall(r"[^\s,]+", match["ignored"].upper())
        return tuple(_EVERY if one == _ALL else one for one in words)
    listed = match["unbracketed"] or match["noqa"]
    return tuple(re.findall(_CODE, listed.upper())) if listed else None
