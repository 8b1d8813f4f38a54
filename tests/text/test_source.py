"""Bytes to text and back without loss, and the positions that both trees agree on."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from ddpify.source import Site, Source, Span, UnreadableSource
from tests.text.edits import source_of
from tests.text.library import part

LATIN = "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1")

READ = [
    pytest.param(b"x = 1\n", "x = 1\n", "utf-8", "\n", id="plain"),
    pytest.param(b"", "", "utf-8", "\n", id="empty"),
    pytest.param(b"x = 1", "x = 1", "utf-8", "\n", id="no-final-newline"),
    pytest.param(b"x\r\ny\r\n", "x\r\ny\r\n", "utf-8", "\r\n", id="crlf"),
    pytest.param(b"a\r\nb\nc\nd\n", "a\r\nb\nc\nd\n", "utf-8", "\n", id="mixed-mostly-lf"),
    pytest.param(b"a\r\nb\r\nc\n", "a\r\nb\r\nc\n", "utf-8", "\r\n", id="mixed-mostly-crlf"),
    pytest.param(b"x\ry\r", "x\ry\r", "utf-8", "\n", id="lone-cr"),
    pytest.param(b"\xef\xbb\xbfx = 1\n", "x = 1\n", "utf-8-sig", "\n", id="bom"),
    pytest.param(LATIN, LATIN.decode("latin-1"), "iso-8859-1", "\n", id="latin-1"),
    pytest.param(b"#!/x\r# coding: cp1252\rx='\x80'\r", None, "cp1252", "\n", id="cookie-after-cr"),
    pytest.param(b"# say\rx = 'coding=klingon'\r", None, "utf-8", "\n", id="no-cookie-after-cr"),
]


@pytest.mark.parametrize(("raw", "text", "encoding", "newline"), READ)
def test_bytes_survive(raw: bytes, text: str | None, encoding: str, newline: str) -> None:
    source = source_of(raw)
    assert text is None or source.text == text
    assert (source.encoding, source.newline) == (encoding, newline)
    assert source.bom == raw.startswith(b"\xef\xbb\xbf")
    assert source.encode(source.text) == raw


@pytest.mark.parametrize("raw", [b"a\r\n\xc3\xa9", b"\xff\0\n", b"# coding: latin-1\n\xc3\xa9"])
def test_a_file_that_is_not_python_survives(raw: bytes) -> None:
    source = Source.plain(raw, Path("run.sh"), "run.sh")
    assert source.encode(source.text) == raw
    assert source.text.endswith("é") == raw.endswith(b"\xa9")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(b"x\0y", "NUL", id="nul"),
        pytest.param(b"x = '\xff'\n", "declare its encoding", id="not-utf-8"),
        pytest.param(b"# coding: klingon\n", "declare its encoding", id="unknown-encoding"),
        pytest.param(b"\xef\xbb\xbf# coding: latin-1\n", "declare", id="bom-against-cookie"),
    ],
)
def test_unreadable_bytes_are_one_sentence(raw: bytes, message: str) -> None:
    with pytest.raises(UnreadableSource, match=message) as caught:
        source_of(raw)
    assert str(caught.value).startswith("main.py: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource, match=r"a/b\.py: cannot be read"):
        Source.read(tmp_path / "gone.py", "a/b.py")


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x = 1\r\n")
    source = Source.read(tmp_path / "a.py", "a.py")
    assert (source.text, source.lines) == ("x = 1\r\n", ("x = 1", ""))


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(UnreadableSource, match=r"^main\.py:2: not valid Python 3"):
        source_of("x = 1\nprint 'x'\n").parse()


def test_parsing_is_silent_about_the_users_strings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source_of("x = '\\d'\nassert (x, 'always')\n").parse()


SPANS = [
    pytest.param("f(x)\n", "f(x)", (1, 0, 1, 4), id="simple"),
    pytest.param("é = f('ü', x)\n", "f('ü', x)", (1, 4, 1, 13), id="characters-not-bytes"),
    pytest.param("x = '🙂'; f()\n", "f()", (1, 9, 1, 12), id="astral"),
    pytest.param("if x:\n\tf()\n", "f()", (2, 1, 2, 4), id="tab-is-one-column"),
    pytest.param("x = 1\n\x0c\nf()\n", "f()", (3, 0, 3, 3), id="form-feed-is-no-line-end"),
    pytest.param("x = '\x85\u2028'\nf()\n", "f()", (2, 0, 2, 3), id="unicode-line-ends"),
    pytest.param("x = 1\r\nf(\r\n  1)\r\n", "f(\n  1)", (2, 0, 3, 4), id="crlf"),
    pytest.param("x = 1\rf()\r", "f()", (2, 0, 2, 3), id="lone-cr"),
    pytest.param("\ufefff()\n", "f()", (1, 0, 1, 3), id="bom"),
    pytest.param("x = ((f()))\n", "f()", (1, 6, 1, 9), id="parentheses"),
]


@pytest.mark.parametrize(("text", "code", "expected"), SPANS)
def test_spans_count_characters(text: str, code: str, expected: tuple[int, ...]) -> None:
    source = source_of(text)
    calls = [node for node in ast.walk(source.parse()) if isinstance(node, ast.Call)]
    site = source.site(calls[0])
    assert site == Site("main.py", Span(*expected))
    assert source.segment(site.span) == code
    assert str(site) == f"main.py:{expected[0]}"


def test_a_decorated_function_starts_at_its_def() -> None:
    source = source_of("@a\n@b\ndef f():\n    pass\n")
    assert source.span(source.parse().body[0]) == Span(3, 0, 4, 8)


# What `ast` counts as part of a node and libcst does not; the rewriter knows these.
OTHER = (ast.Tuple, ast.GeneratorExp, ast.Slice, ast.Starred)


@pytest.mark.parametrize("number", range(5))
def test_both_trees_agree_on_the_standard_library(number: int) -> None:
    for source in part(number, 5):
        expressions, statements = libcst_spans(source)
        tree = source.parse()
        pieces = {id(child) for node in ast.walk(tree) for child in f_string_pieces(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt):
                assert source.span(node) in statements, source.site(node)
            elif (
                isinstance(node, ast.expr)
                and not isinstance(node, OTHER)
                and id(node) not in pieces
            ):
                assert source.span(node) in expressions, source.site(node)


def f_string_pieces(node: ast.AST) -> list[ast.expr]:
    """No expressions of their own; Python 3.12 gives them places all the same."""
    if isinstance(node, ast.JoinedStr):
        return list(node.values)
    return [node.format_spec] if isinstance(node, ast.FormattedValue) and node.format_spec else []


def libcst_spans(source: Source) -> tuple[set[Span], set[Span]]:
    """Of all expressions and of all statements."""
    module = cst.parse_module(source.text)
    ranges = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    expressions, statements = set(), set()
    for node, at in ranges.items():
        span = Span(at.start.line, at.start.column, at.end.line, at.end.column)
        if isinstance(node, cst.BaseExpression):
            expressions.add(span)
        elif isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            statements.add(span)
    return expressions, statements
