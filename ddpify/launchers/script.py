"""A shell script as a syntax tree, with positions in characters.

tree-sitter counts bytes and now and then splits one word into two nodes; both are put
right here, so that the readers above see words as the shell does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ddpify.source import Site, Span

if TYPE_CHECKING:
    from tree_sitter import Node

_ENCODING = ("utf-8", "surrogateescape")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?=\w|\{\w+\})\{?([A-Za-z_]\w*)\}?")
LOOPS = frozenset(("for_statement", "c_style_for_statement", "while_statement"))
CHAINS = frozenset(("redirected_statement", "pipeline", "list"))
_REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))


@dataclass(frozen=True)
class Word:
    """One word of a command; ``parts`` has None for each piece the shell fills in."""

    start: int
    end: int
    text: str
    parts: tuple[str | None, ...]

    @property
    def literal(self) -> str | None:
        """The word's value, if nothing in it is filled in by the shell."""
        known = [part for part in self.parts if part is not None]
        return "".join(known) if len(known) == len(self.parts) else None

    @property
    def tail(self) -> str:
        """The literal end of the word."""
        return (self.parts[-1] or "") if self.parts else ""


@dataclass(frozen=True)
class Assignment:
    """``name=value`` in front of a command or on its own."""

    start: int
    name: str
    value: Word
    node: Node = field(repr=False)


@dataclass(frozen=True)
class Command:
    """A simple command without its redirections."""

    node: Node = field(repr=False)
    prefixes: tuple[Assignment, ...]
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Script:
    """A parsed script; offsets are bytes of ``data``."""

    path: str
    text: str
    data: bytes = field(repr=False)
    root: Node = field(repr=False)

    @classmethod
    def parse(cls, path: str, text: str) -> Script:
        """Parse ``text``; loads tree-sitter."""
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        data = text.encode(*_ENCODING)
        tree = Parser(Language(tree_sitter_bash.language())).parse(data)
        return cls(path, text, data, tree.root_node)

    @cached_property
    def first_error(self) -> int | None:
        """Where the parser first lost its way."""
        starts = [n.start_byte for n in nodes(self.root) if n.is_error or n.is_missing]
        return min(starts, default=None)

    @cached_property
    def bash(self) -> bool:
        """Whether the script names a shell with here-strings."""
        first = self.text.split("\n", 1)[0]
        shebang = first.startswith("#!") and re.search(r"\b(bash|zsh|ksh)\b", first)
        return bool(shebang) or self.path.endswith(".bash")

    @cached_property
    def newline(self) -> str:
        """The script's line end."""
        return "\r\n" if "\r\n" in self.text else "\n"

    @cached_property
    def _line_starts(self) -> tuple[int, ...]:
        return line_starts(self.text)

    @cached_property
    def assignments(self) -> tuple[Assignment, ...]:
        """The assignments that are statements, not prefixes of one command."""
        found = (n for n in nodes(self.root) if n.type == "variable_assignment")
        return tuple(
            self.assignment(n, n.end_byte)
            for n in found
            if n.parent is not None and n.parent.type != "command"
        )

    @cached_property
    def _loops(self) -> dict[str, tuple[Word, ...]]:
        """What each variable of a `for … in …` goes through."""
        loops: dict[str, tuple[Word, ...]] = {}
        for node in nodes(self.root):
            name = node.child_by_field_name("variable") if node.type == "for_statement" else None
            if name is not None:
                key = self.slice(name.start_byte, name.end_byte)
                items = (self.word(n) for n in node.children_by_field_name("value"))
                loops[key] = (*loops.get(key, ()), *items)
        return loops

    def values(self, word: Word) -> tuple[Word, ...]:
        """What ``word`` may be, where one variable of the script is all that is not known of it."""
        names = set(_VARIABLE.findall(word.text))
        if word.literal is not None or len(names) != 1:
            return ()
        (name,) = names
        given = [a.value for a in self.assignments if a.name == name]
        found = (self._filled(word, value) for value in (*given, *self._loops.get(name, ())))
        return tuple(found)

    def _filled(self, word: Word, value: Word) -> Word:
        text = _VARIABLE.sub(lambda _: value.literal or "$", word.text)
        known = value.literal is not None and not re.search(r"[$`\\'*?\[{]", text)
        parts = (text.replace('"', ""),) if known else (None,)
        return Word(word.start, word.end, word.text, parts)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """Every simple command, in the order of the text."""
        return tuple(self.command(n) for n in nodes(self.root) if n.type == "command")

    def slice(self, start: int, end: int) -> str:
        """The text between two byte offsets."""
        return self.data[start:end].decode(*_ENCODING)

    def span(self, start: int, end: int) -> Span:
        """The span between two byte offsets."""
        return Span(*self._position(start), *self._position(end))

    def site(self, start: int, end: int) -> Site:
        """The place between two byte offsets."""
        return Site(self.path, self.span(start, end))

    def line_head(self, offset: int) -> str:
        """What stands before ``offset`` on its line."""
        start = max(self.data.rfind(b"\n", 0, offset), self.data.rfind(b"\r", 0, offset)) + 1
        return self.slice(start, offset)

    def _position(self, offset: int) -> tuple[int, int]:
        from bisect import bisect_right

        at = offset if self.text.isascii() else len(self.slice(0, offset))
        line = bisect_right(self._line_starts, at)
        return line, at - self._line_starts[line - 1]

    def command(self, node: Node) -> Command:
        """The words of a command node."""
        prefixes: list[Assignment] = []
        words: list[Word] = []
        for group in _glued([c for c in node.children if c.type not in _REDIRECTS]):
            first, end = group[0], group[-1].end_byte
            if first.type == "variable_assignment":
                prefixes.append(self.assignment(first, end))
            else:
                parts = tuple(p for n in group for p in self._parts(n))
                words.append(self._word(first.start_byte, end, parts))
        return Command(node, tuple(prefixes), tuple(words))

    def assignment(self, node: Node, end: int) -> Assignment:
        """An assignment node whose word ends at ``end``."""
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        known = self.slice(name.start_byte, name.end_byte) if name else ""
        start = value.start_byte if value else end
        parts = tuple(self._parts(value)) if value else ()
        if end != node.end_byte:
            parts = (*parts, None)
        return Assignment(node.start_byte, known, self._word(start, end, parts), node)

    def word(self, node: Node) -> Word:
        """The word that one node is."""
        return self._word(node.start_byte, node.end_byte, tuple(self._parts(node)))

    def _word(self, start: int, end: int, parts: tuple[str | None, ...]) -> Word:
        return Word(start, end, self.slice(start, end), _joined(parts))

    def _parts(self, node: Node) -> Iterator[str | None]:
        text = self.slice(node.start_byte, node.end_byte)
        if node.type == "raw_string":
            yield text[1:-1]
        elif node.type == "string" and text.startswith('"'):
            yield from self._string_parts(node)
        elif node.type in ("concatenation", "command_name"):
            for child in node.children:
                yield from self._parts(child)
        elif node.type in ("word", "number") and not node.named_children:
            if text.startswith("~"):
                yield None
            yield _ESCAPED.sub(r"\1", text.removeprefix("~"))
        else:
            yield None

    def _string_parts(self, node: Node) -> Iterator[str | None]:
        # tree-sitter leaves blanks beside expansions out of `string_content`
        at = node.start_byte + 1
        for child in node.named_children:
            if child.type == "string_content":
                continue
            yield _ESCAPED.sub(r"\1", self.slice(at, child.start_byte))
            yield None
            at = child.end_byte
        yield _ESCAPED.sub(r"\1", self.slice(at, node.end_byte - 1))


def line_starts(text: str) -> tuple[int, ...]:
    """The offset of every line, by the line ends that ``Source.lines`` knows."""
    return (0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text)))


def nodes(root: Node) -> Iterator[Node]:
    """Every node below ``root`` and itself, in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def ancestors(node: Node) -> Iterator[Node]:
    """The nodes around ``node``, from the inside out."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def statement(node: Node) -> Node:
    """The whole statement that a command is a part of: ``cd runs && torchrun … 2>&1 | tee log``."""
    while node.parent is not None and node.parent.type in CHAINS:
        node = node.parent
    return node


def is_left(node: Node) -> bool:
    """Whether the shell goes on at once: ``torchrun … &``."""
    after = statement(node).next_sibling
    return after is not None and after.type == "&"


def _glued(children: list[Node]) -> list[list[Node]]:
    """Children grouped into words: `$1,$2` is parsed as `$1,$` and `2`."""
    groups: list[list[Node]] = []
    for child in children:
        if groups and groups[-1][-1].end_byte == child.start_byte:
            groups[-1].append(child)
        else:
            groups.append([child])
    return groups


def _joined(parts: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Neighbouring literal pieces as one; empty pieces dropped."""
    joined: list[str | None] = []
    for part in parts:
        if part == "":
            continue
        if part is not None and joined and joined[-1] is not None:
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)
