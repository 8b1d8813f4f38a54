"""Statements: what each kind of edit makes of a text, and that all else stays as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.text.edits import rewritten
from tests.text.statements import MAIN, STATEMENTS


@pytest.mark.parametrize(("text", "edits", "expected"), STATEMENTS)
def test_statements(text: str, edits: list[tuple[str, ...]], expected: str) -> None:
    assert rewritten(text, *edits) == expected


@pytest.mark.parametrize(("text", "edits", "expected"), STATEMENTS)
@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n").encode(), id="crlf"),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text.encode(), id="bom"),
        pytest.param(lambda text: text.removesuffix("\n").encode(), id="no-final-newline"),
    ],
)
def test_statements_in_other_files(
    text: str, edits: list[tuple[str, ...]], expected: str, convert: Callable[[str], bytes]
) -> None:
    wanted = convert(expected).decode("utf-8-sig")
    assert rewritten(convert(text), *edits) == wanted


LAYOUT = [
    pytest.param(
        "if x:\n\tprint(1)\n",
        [("gate", "print(1)", MAIN), ("after", "print(1)", "def f(): return 1")],
        "if x:\n\tif is_main():\n\t\tprint(1)\n\n\tdef f():\n\t\treturn 1\n",
        id="tabs",
    ),
    pytest.param(
        "if x:\n  print(1)\n",
        [("before", "print(1)", f"f({'a' * 42}, {'b' * 40})"), ("gate", "print(1)", MAIN)],
        f"if x:\n  f(\n    {'a' * 42},\n    {'b' * 40},\n  )\n  if is_main():\n    print(1)\n",
        id="two-spaces",
    ),
    pytest.param(
        "if x:\n        print(1)\n",
        [("gate", "print(1)", MAIN)],
        "if x:\n        if is_main():\n                print(1)\n",
        id="eight-spaces",
    ),
    pytest.param(
        "if x:\n    \x0c  print(1)\n",
        [("gate", "print(1)", MAIN)],
        "if x:\n    \x0c  if is_main():\n    \x0c      print(1)\n",
        id="form-feed-in-the-indentation",
    ),
    pytest.param(
        "a\r\nb\nprint(1)\r\n",
        [("gate", "print(1)", MAIN)],
        "a\r\nb\nif is_main():\r\n    print(1)\r\n",
        id="mixed-line-ends",
    ),
    pytest.param(
        "x = '''a\r\nb'''\r\nprint('''c\r\nd''')\r\n",
        [("gate", "print(…", MAIN), ("before", "print(…", "s = '''e\nf'''")],
        "x = '''a\r\nb'''\r\ns = \"\"\"e\r\nf\"\"\"\r\n"
        "if is_main():\r\n    print('''c\r\nd''')\r\n",
        id="strings-with-crlf",
    ),
]


@pytest.mark.parametrize(("text", "edits", "expected"), LAYOUT)
def test_the_files_own_layout(text: str, edits: list[tuple[str, ...]], expected: str) -> None:
    assert rewritten(text, *edits) == expected


def test_a_declared_encoding_is_kept() -> None:
    text = "# -*- coding: latin-1 -*-\nprint('é', 'ß'); x = 'ü'\n"
    wanted = "# -*- coding: latin-1 -*-\nif is_main():\n    print('é', 'ß')\nx = 'ü'\n"
    assert rewritten(text.encode("latin-1"), ("gate", "print('é', 'ß')", MAIN)) == wanted
