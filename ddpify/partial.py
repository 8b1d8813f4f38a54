"""A migration of what is certain: the rest is marked where it is, and the program does not start.

The marks are put into the rendered text, above the statement that a line of the original has
become; the tree of the file stays what it was.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ddpify import todo
from ddpify.moved import line_after
from ddpify.outcome import Note, Outcome, Refusal
from ddpify.plan import Change
from ddpify.site import Site, Span
from ddpify.source import Source

_ACCEPT = re.compile(r"; `--accept [^`]*` migrates it as it stands")


def marked(
    outcome: Outcome, left: Sequence[Refusal], sources: Mapping[str, Source], width: int
) -> Outcome:
    """A rendered outcome with a comment for each refusal, and a guard in each entry."""
    changes = {change.path: change for change in outcome.changes}
    said: dict[str, list[tuple[int, str]]] = {path: [] for path in outcome.entries}
    for one in left:
        if one.site is not None:
            said.setdefault(one.site.path, []).append((one.site.span.line, _sentence(one)))
    sentences = list(dict.fromkeys(_sentence(one) for one in left))
    notes = []
    for path, places in said.items():
        source = sources[path]
        change = changes.get(path) or Change(path, source.raw, source.raw, ())
        text = _text(change, source)
        for line, sentence in sorted(places, reverse=True):
            text = _commented(text, line_after(change, line), sentence, width, source.newline)
        if path in outcome.entries:
            text = _guarded(text, todo.guard(sentences, width), source.newline)
        changes[path] = replace(change, after=source.encode(text))
        notes += [Note(Site(path, Span(n, 0, n, 0)), what) for n, what in todo.marks(text)]
    ordered = tuple(changes[path] for path in sorted(changes))
    return replace(outcome, changes=ordered, todos=tuple(notes))


def _text(change: Change, source: Source) -> str:
    return Source.from_bytes(change.after, source.file, source.path).text


def _sentence(one: Refusal) -> str:
    """What is left to do, without the place, which is where it is said."""
    place = f"{one.site}: " if one.site else ""
    return _ACCEPT.sub("", one.message.removeprefix(place))


def _commented(text: str, line: int, sentence: str, width: int, newline: str) -> str:
    """The text with a comment above the innermost statement that it may stand above."""
    lines = _lines(text)
    tree = ast.dump(ast.parse(text))
    for start in (*_starts(text, line), _head(lines) + 1):
        head = lines[start - 1] if start <= len(lines) else ""
        indent = head[: len(head) - len(head.lstrip())].rstrip("\r\n")
        added = [f"{one}{newline}" for one in todo.comment(sentence, indent, width)]
        new = "".join([*lines[: start - 1], *added, *lines[start - 1 :]])
        if _dumped(new) == tree:
            return new
    return text


def _lines(text: str) -> list[str]:
    """The lines as Python counts them: a form feed ends none."""
    return list(io.StringIO(text, newline=""))


def _head(lines: Sequence[str]) -> int:
    """How many comments come first: a shebang, the encoding, the licence stay in front."""
    return next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _starts(text: str, line: int) -> Iterator[int]:
    """The first lines of the statements around a line, the innermost first."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            decorators = getattr(node, "decorator_list", [])
            found.append(min([node.lineno, *(one.lineno for one in decorators)]))
    yield from sorted(set(found), reverse=True)


def _dumped(text: str) -> str:
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:
        return ""


def _guarded(text: str, guard: Sequence[str], newline: str) -> str:
    """The text with the guard above the first statement that does something."""
    tree = ast.parse(text)
    lines = _lines(text)
    first = 0  # the last line of what has to come first
    for number, node in enumerate(tree.body):
        doc = number == 0 and ast.get_docstring(tree) is not None
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not doc and not future:
            break
        first = node.end_lineno or 0
    for node in tree.body:  # what begins on its last line ends later
        first = max(first, node.end_lineno or 0) if node.lineno <= first else first
    first += _head(lines[first:])
    around = ("", *guard) if first else (*guard, "")
    added = [f"{one}{newline}" for one in around]
    return "".join([*lines[:first], *added, *lines[first:]])
