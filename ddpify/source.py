"""One source file: bytes to text and back without loss, and positions in that text."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar, cast

from ddpify.literals import LARGE, without_tables
from ddpify.respelling import NOW, modernized, respelled
from ddpify.respelling import Respelled as Respelled
from ddpify.site import Site as Site
from ddpify.site import Span as Span
from ddpify.todo import without_guard

Node = TypeVar("Node", bound=ast.AST)
Found = TypeVar("Found")


class UnreadableSource(Exception):
    """The file cannot be read as Python; the message is one sentence for the user."""


# What a line may have that a later Python reads: an f-string (3.12), type parameters, a t-string.
_NEWER: Final = re.compile(r"\b(?:f|t|fr|rf|tr|rt)[\"']|^\s*(?:type \w+|(?:def|class) \w+\[)", re.I)
LATER: Final = "cannot read it, a newer one may"


@dataclass(frozen=True)
class Source:
    """A Python file as found on disk.

    ``text`` is the decoded file with its own line endings and without the BOM; ``newline``
    is the end that most of its lines have.
    """

    path: str
    file: Path
    raw: bytes
    text: str
    encoding: str
    bom: bool
    newline: str
    lines: tuple[str, ...] = field(repr=False)

    @classmethod
    def read(cls, file: Path, path: str) -> Source:
        """Read ``file``.

        Raises:
            UnreadableSource: it is missing, not text, or not in its declared encoding.
        """
        try:
            raw = file.read_bytes()
        except OSError as error:
            raise UnreadableSource(f"{path}: cannot be read ({error.strerror})") from error
        return cls.from_bytes(raw, file, path)

    @classmethod
    def from_bytes(cls, raw: bytes, file: Path, path: str) -> Source:
        """Decode ``raw`` by its BOM or PEP 263 cookie. Raises UnreadableSource."""
        if b"\0" in raw:
            raise UnreadableSource(f"{path}: not a Python source file (it holds NUL bytes)")
        try:
            # A lone carriage return ends a line too, also the one with the declaration.
            head = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            encoding, _ = tokenize.detect_encoding(io.BytesIO(head).readline)
            text = raw.decode(encoding)
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise UnreadableSource(
                f"{path}: cannot be decoded; declare its encoding on the first line ({error})"
            ) from error
        newline = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
        bom = raw.startswith(b"\xef\xbb\xbf")
        return cls(path, file, raw, text, encoding, bom, newline, tuple(_split_lines(text)))

    @classmethod
    def plain(cls, raw: bytes, file: Path, path: str) -> Source:
        """A file that is not Python: UTF-8, other bytes kept as they are."""
        try:
            text, encoding = raw.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            text, encoding = raw.decode("latin-1"), "latin-1"
        newline = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
        return cls(path, file, raw, text, encoding, False, newline, tuple(_split_lines(text)))

    def encode(self, text: str) -> bytes:
        """Bytes of ``text`` in this file's encoding (``utf-8-sig`` writes the BOM back)."""
        return text.encode(self.encoding)

    def parse(self) -> ast.Module:
        """The standard library's tree, made once. Raises UnreadableSource on a syntax error."""
        return self._tree

    @property
    def legacy(self) -> Respelled | None:
        """The text that is parsed in place of one with the keyword ``async``, if it has one."""
        return self._parsed[1]

    @property
    def moves_spelled_async(self) -> tuple[tuple[Site, str], ...]:
        """Calls ``x.cuda(async=True)``, each with the text of what ``async`` is given."""
        return tuple(
            (self.site(call), self.segment(self.span(one.value)))
            for call in self._parsed[2]
            for one in call.keywords
            if one.arg == NOW
        )

    @property
    def _tree(self) -> ast.Module:
        return self._parsed[0]

    @cached_property
    def _parsed(self) -> tuple[ast.Module, Respelled | None, list[ast.Call]]:
        try:
            return _parse(self.text), None, []
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            legacy = respelled(self.text) if isinstance(error, SyntaxError) else None
            if legacy is not None:
                try:
                    tree = _parse(legacy.text)
                except (SyntaxError, ValueError, RecursionError, MemoryError) as other:
                    raise self._unreadable(other) from error
                calls = modernized(tree, legacy.stand_in)
                if calls is not None:
                    return tree, legacy, calls
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> UnreadableSource:
        line = getattr(error, "lineno", None) or 1
        message = getattr(error, "msg", None) or str(error) or "nested too deeply"
        number = f"{sys.version_info.major}.{sys.version_info.minor}"
        if isinstance(error, SyntaxError) and _NEWER.search(error.text or ""):
            return UnreadableSource(f"{self.path}:{line}: Python {number} {LATER} ({message})")
        return UnreadableSource(
            f"{self.path}:{line}: not valid Python 3 ({message}; read with Python {number})"
        )

    def span(self, node: ast.AST) -> Span:
        """The span of ``node``, its UTF-8 byte columns converted to characters.

        A decorated function or class starts at its ``def``, as in libcst.
        """
        return Span(
            node.lineno,  # type: ignore[attr-defined]
            self._column(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            node.end_lineno,  # type: ignore[attr-defined]
            self._column(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def site(self, node: ast.AST) -> Site:
        """Where ``node`` stands."""
        found = self._sites.get(node)
        if found is None:
            found = self._sites[node] = Site(self.path, self.span(node))
        return found

    @cached_property
    def _sites(self) -> dict[ast.AST, Site]:
        return {}

    def once(self, find: Callable[[Node], Found], node: Node) -> Found:
        """What ``find`` says of a node of the tree, asked once in all readings of the file."""
        key = (find, node)
        if key not in self._found:
            self._found[key] = find(node)
        return cast(Found, self._found[key])

    @cached_property
    def _found(self) -> dict[tuple[object, ast.AST], object]:
        return {}

    def segment(self, span: Span) -> str:
        """The text a span covers, with ``\\n`` line ends."""
        if span.line == span.end_line:
            return self.lines[span.line - 1][span.column : span.end_column]
        head = self.lines[span.line - 1][span.column :]
        body = self.lines[span.line : span.end_line - 1]
        return "\n".join((head, *body, self.lines[span.end_line - 1][: span.end_column]))

    def _column(self, line: int, byte_column: int) -> int:
        text = self.lines[line - 1]
        if text.isascii():
            return byte_column
        return len(text.encode("utf-8")[:byte_column].decode("utf-8", errors="replace"))


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user's `"\d"` is not ours to report
        tree = without_guard(ast.parse(text))
    return without_tables(tree) if len(text) > LARGE else tree


def _split_lines(text: str) -> list[str]:
    """Lines as Python's tokenizer counts them: only \\n, \\r\\n and \\r end a line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def module_file(stem: Path) -> Path | None:
    """The file that an import of this path means: a module, or a package's ``__init__.py``."""
    module = stem.with_name(stem.name + ".py") if stem.name else stem
    if module.is_file():
        return module
    package = stem / "__init__.py"
    return package if package.is_file() else None
