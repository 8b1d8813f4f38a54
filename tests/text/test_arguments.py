"""Arguments: set, wrapped and removed in the layout that the call has."""

from __future__ import annotations

import pytest

from ddpify.plan import Plan
from tests.text.edits import edit, finding, rewritten, source_of

CALL = "f(a, b=1)"
LINES = "f(\n    a,  # one\n    b=1,  # two\n)"
ARGUMENT = [
    pytest.param(CALL, "c", "2", "f(a, b=1, c=2)", id="new"),
    pytest.param("f()", "c", "2", "f(c=2)", id="first"),
    pytest.param(CALL, "b", "2", "f(a, b=2)", id="reset"),
    pytest.param(CALL, "b", "g({})", "f(a, b=g(1))", id="wrapped"),
    pytest.param("f(b=x, c=2)", "b", "{} or y", "f(b=x or y, c=2)", id="no-needless-parentheses"),
    pytest.param(CALL, "b", "x, y", "f(a, b=(x, y))", id="reset-to-a-tuple"),
    pytest.param(CALL, "b", "", "f(a)", id="removed"),
    pytest.param("f(a,\n  b=1)", "b", "", "f(a)", id="aligned-removed"),
    pytest.param("f(b=1)", "b", "", "f()", id="removed-only"),
    pytest.param("f(b=1, c=2)", "b", "", "f(c=2)", id="removed-first"),
    pytest.param("f(a, b=1, c=2)", "b", "", "f(a, c=2)", id="removed-middle"),
    pytest.param("f(a, b=1,)", "b", "", "f(a,)", id="removed-before-trailing-comma"),
    pytest.param("f(a, b=1,)", "c", "2", "f(a, b=1, c=2,)", id="trailing-comma"),
    pytest.param("f(a, **k)", "c", "2", "f(a, c=2, **k)", id="before-keywords"),
    pytest.param("f(**k)", "c", "2", "f(c=2, **k)", id="before-lone-keywords"),
    pytest.param("f(a, *k)", "c", "2", "f(a, *k, c=2)", id="after-starred"),
    pytest.param("f(x for x in y)", "c", "2", "f((x for x in y), c=2)", id="generator"),
    pytest.param("f(a)", "c", "x, y", "f(a, c=(x, y))", id="tuple"),
    pytest.param(CALL, "", "z", "f(z, a, b=1)", id="in-front"),
    pytest.param("f()", "", "z", "f(z)", id="in-front-of-nothing"),
    pytest.param("f(*a)", "", "z", "f(z, *a)", id="in-front-of-starred"),
    pytest.param("f(x for x in y)", "", "z", "f(z, (x for x in y))", id="in-front-of-a-generator"),
    pytest.param(
        LINES, "", "z", "f(\n    z,\n    a,  # one\n    b=1,  # two\n)", id="lines-in-front"
    ),
    pytest.param(
        LINES, "c", "2", "f(\n    a,  # one\n    b=1,  # two\n    c=2,\n)", id="lines-new"
    ),
    pytest.param(LINES, "b", "", "f(\n    a,  # one\n)", id="lines-removed-last"),
    pytest.param(
        "f(\n    a=1,  # one\n    b=2,  # two\n)",
        "a",
        "",
        "f(\n    b=2,  # two\n)",
        id="lines-first",
    ),
    pytest.param(
        "f(\n    a,\n    # about b\n    b=1\n)",
        "c",
        "2",
        "f(\n    a,\n    # about b\n    b=1,\n    c=2\n)",
        id="lines-without-trailing-comma",
    ),
    pytest.param(
        "f(\n    a,\n    b=1  # one\n)",
        "c",
        "2",
        "f(\n    a,\n    b=1,  # one\n    c=2\n)",
        id="comment-behind-the-last",
    ),
    pytest.param(
        "f(\n    a,\n    # b=1,\n)",
        "c",
        "2",
        "f(\n    a,\n    # b=1,\n    c=2,\n)",
        id="commented-out",
    ),
    pytest.param("f(a,\n  b=1)", "c", "2", "f(a,\n  b=1,\n  c=2)", id="aligned"),
    pytest.param("f(a,\n  b=1, c=2)", "d", "3", "f(a,\n  b=1, c=2, d=3)", id="filled-lines"),
    pytest.param("f(a, b=1,\n  c=2)", "b", "", "f(a,\n  c=2)", id="filled-lines-removed"),
    pytest.param("f(a,  # one\n  b=1)", "b", "", "f(a  # one\n  )", id="comment-needs-its-line"),
    pytest.param(
        "f(\n    a,\n    **k,\n)",
        "c",
        "2",
        "f(\n    a,\n    c=2,\n    **k,\n)",
        id="lines-keywords",
    ),
    pytest.param(
        "f(\n    a,\n    b=1,\n    # about c\n    c=2,\n)",
        "b",
        "",
        "f(\n    a,\n    # about c\n    c=2,\n)",
        id="comment-of-the-next",
    ),
]


@pytest.mark.parametrize(("call", "name", "code", "expected"), ARGUMENT)
def test_argument(call: str, name: str, code: str, expected: str) -> None:
    assert rewritten(f"x = {call}\n", ("argument", call, code, name)) == f"x = {expected}\n"


@pytest.mark.parametrize(("call", "name", "code", "expected"), ARGUMENT)
def test_argument_of_an_indented_call(call: str, name: str, code: str, expected: str) -> None:
    text = f"if y:\n    {call}.z()\n".replace("\n", "\n    ").rstrip(" ")
    wanted = f"if y:\n    {expected}.z()\n".replace("\n", "\n    ").rstrip(" ")
    text, wanted = (
        one.replace("    if", "if").replace("\n        f", "\n    f") for one in (text, wanted)
    )
    assert rewritten(text, ("argument", call.replace("\n", "\n    "), code, name)) == wanted


ENTRIES = [
    pytest.param([("b", "2")], 'f(a, **{**k, "b": 2})', id="one"),
    pytest.param([("c", "3"), ("b", "9")], 'f(a, **{**k, "b": 9, "c": 3})', id="two-of-two-rules"),
]


@pytest.mark.parametrize(("entries", "expected"), ENTRIES)
def test_entries_stand_beside_those_of_what_is_given(
    entries: list[tuple[str, str]], expected: str
) -> None:
    edits = [("entry", "k", code, name) for name, code in entries]
    assert rewritten("x = f(a, **k)\n", *edits) == f"x = {expected}\n"


def test_two_codes_for_one_entry_exclude_each_other() -> None:
    source = source_of("x = f(a, **k)\n")
    asked = [finding(edit(source, "entry", "k", code, "b"), rule=code) for code in "12"]
    assert Plan.of(asked).clashes
