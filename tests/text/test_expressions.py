"""Expressions: parentheses where they are needed, and formatting only where it is."""

from __future__ import annotations

import black
import pytest
from black.parsing import InvalidInput

from ddpify.rewrite import RewriteError, Style
from tests.text.edits import changes, edit, rewritten, source_of

REPLACE = [
    pytest.param(
        "x = (  # c\n    a or b\n).d\n",
        "a or b",
        "e",
        "x = (  # c\n    e\n).d\n",
        id="parens-with-a-comment-stay",
    ),
    pytest.param("x = net()\n", "net()", "wrap({})", "x = wrap(net())\n", id="wrap"),
    pytest.param("x = net()\n", "net()", "other", "x = other\n", id="without-a-hole"),
    pytest.param("x = a\n", "a", "{}", "x = a\n", id="nothing"),
    pytest.param("x = a\n", "a", "f({}, {}) + {}", "x = f(a, a) + a\n", id="three-holes"),
    pytest.param("x = a.b\n", "a", "{} or c", "x = (a or c).b\n", id="or-under-attribute"),
    pytest.param("x = a or b\n", "a", "{} or c", "x = a or c or b\n", id="or-left-of-or"),
    pytest.param("x = a and b\n", "b", "not {}", "x = a and not b\n", id="not-under-and"),
    pytest.param("x = not a\n", "a", "{} or b", "x = not (a or b)\n", id="or-under-not"),
    pytest.param("x = -a\n", "a", "{} ** 2", "x = -a ** 2\n", id="power-under-minus"),
    pytest.param("x = a - b\n", "b", "{} - c", "x = a - (b - c)\n", id="right-of-minus"),
    pytest.param("x = a ** b\n", "a", "{} ** c", "x = (a ** c) ** b\n", id="left-of-power"),
    pytest.param("x = lambda: a\n", "lambda: a", "{} or b", "x = (lambda: a) or b\n", id="lambda"),
    pytest.param(
        "x = a if b else c\n", "a if b else c", "{}.d", "x = (a if b else c).d\n", id="if"
    ),
    pytest.param("x = a, b\n", "a, b", "f({})", "x = f((a, b))\n", id="bare-tuple"),
    pytest.param("x = (a, b)\n", "(a, b)", "f({})", "x = f((a, b))\n", id="tuple"),
    pytest.param("f(a for a in b)\n", "(a for a in b)", "g({})", "f(g(a for a in b))\n", id="lone"),
    pytest.param(
        "f(a for a in b)\n", "(a for a in b)", "{} or c", "f((a for a in b) or c)\n", id="gen"
    ),
    pytest.param("x = 1\n", "1", "{}.real", "x = (1).real\n", id="number"),
    pytest.param("x = (a + b) * c\n", "a + b", "f({})", "x = f(a + b) * c\n", id="parens-move-in"),
    pytest.param(
        "x = (a + b) * c\n", "a + b", "{}.d", "x = (a + b).d * c\n", id="parens-stay-inside"
    ),
    pytest.param("x = (a)\n", "a", "b", "x = (b)\n", id="parens-of-the-author"),
    pytest.param("x = (a or b).c\n", "a or b", "d", "x = d.c\n", id="parens-not-needed-now"),
    pytest.param(
        "return_(x)if(y)else(z)\n", "y", "f({})", "return_(x)if(f(y))else(z)\n", id="tight"
    ),
    pytest.param("x = 1if y else 2\n", "1", "one", "x = (one)if y else 2\n", id="tight-number"),
    pytest.param(
        "x = (  # c\n    a\n    + b\n)\n",
        "a\n    + b",
        "f({})",
        "x = f(  # c\n    a\n    + b\n)\n",
        id="several-lines-move-in",
    ),
    pytest.param(
        "x = (\n    a  # c\n    + b\n)\n",
        "a  # c\n    + b",
        "not {}",
        "x = (\n    not a  # c\n    + b\n)\n",
        id="several-lines-stay",
    ),
    pytest.param(
        "f('a')\n", "'a'", "'{}'.format({})", "f('{}'.format('a'))\n", id="braces-in-a-string"
    ),
    pytest.param('x = f"{a}"\n', "a", 'd["a"]', "x = f\"{d['a']}\"\n", id="in-an-f-string"),
    pytest.param("for i in x: y\n", "x", "tqdm({})", "for i in tqdm(x): y\n", id="in-a-head"),
    pytest.param("@d(a)\nclass A: pass\n", "a", "b", "@d(b)\nclass A: pass\n", id="in-a-decorator"),
    pytest.param("[*a]\n", "a", "{} or b", "[*(a or b)]\n", id="starred"),
    pytest.param(
        "[i for i in a if b]\n",
        "a",
        "{} if c else d",
        "[i for i in (a if c else d) if b]\n",
        id="comprehension",
    ),
]


@pytest.mark.parametrize(("text", "code_at", "code", "expected"), REPLACE)
def test_replace(text: str, code_at: str, code: str, expected: str) -> None:
    assert rewritten(text, ("replace", code_at, code)) == expected


NESTED = [
    pytest.param(
        "loader = DataLoader(load(root), batch_size=args.bs, shuffle=True)\n",
        [
            ("replace", "load(root)", "first({})"),
            (
                "argument",
                "DataLoader(load(root), batch_size=args.bs, shuffle=True)",
                "{} // n()",
                "batch_size",
            ),
            ("argument", "DataLoader(load(root), batch_size=args.bs, shuffle=True)", "", "shuffle"),
            ("replace", "DataLoader(load(root), batch_size=args.bs, shuffle=True)", "ddp({})"),
            ("replace", "args", "options"),
        ],
        "loader = ddp(DataLoader(first(load(root)), batch_size=options.bs // n()))\n",
        id="arguments-and-wraps",
    ),
    pytest.param(
        "log(f(x))\n",
        [("gate", "log(f(x))", "m()"), ("argument", "log(f(x))", "1", "n"), ("replace", "x", "y")],
        "if m():\n    log(f(y), n=1)\n",
        id="in-a-gated-statement",
    ),
    pytest.param(
        "f(x)\n",
        [("replace", "f(x)", "g({})"), ("replace", "x", "{}, 1")],
        "g(f((x, 1)))\n",
        id="tuple",
    ),
    pytest.param(
        "x = a\n", [("replace", "a", "f(a={})")], "x = f(a=a)\n", id="keyword-like-the-hole"
    ),
]


@pytest.mark.parametrize(("text", "edits", "expected"), NESTED)
def test_edits_compose(text: str, edits: list[tuple[str, ...]], expected: str) -> None:
    assert rewritten(text, *edits) == expected


A, B, C = "a" * 30, "b" * 30, "c" * 30
LONG = [
    pytest.param(
        f"x  =  f({A}, {B})\n",
        [("replace", A, "g({})")],
        f"x  =  f(g({A}), {B})\n",
        id="short-enough-keeps-its-spaces",
    ),
    pytest.param(
        f"x  =  f({A}, {B}, 'c')  # d\n",
        [("replace", A, "some_wrapper({})")],
        f"x = f(\n    some_wrapper({A}), {B}, 'c'\n)  # d\n",
        id="too-long",
    ),
    pytest.param(
        f"x  =  f({A}, {B}, {C}, {A}, yy)\n",
        [("replace", "yy", "z")],
        f"x  =  f({A}, {B}, {C}, {A}, z)\n",
        id="is-shorter-than-it-was",
    ),
    pytest.param(
        f"# {A}{B}{C}{A[2:]}\nx  =  f({A}, {B}, y)\n",
        [("replace", "y", C)],
        f"# {A}{B}{C}{A[2:]}\nx  =  f({A}, {B}, {C})\n",
        id="the-file-has-lines-as-long",
    ),
    pytest.param(
        f"a; x  =  f({A}, {B}, y)\n",
        [("replace", "y", C)],
        f"a; x  =  f({A}, {B}, {C})\n",
        id="not-several-on-a-line",
    ),
    pytest.param(
        f"x  =  f({A}, {B}, {C}, y)\n",
        [("replace", "y", "z")],
        f"x  =  f({A}, {B}, {C}, z)\n",
        id="was-too-long-before",
    ),
    pytest.param(
        f"if x:\n  # c\n  while f({A},  {B}, y):  # d\n    a  =  1\n  else: b  =  2\n",
        [("replace", "y", C)],
        f"if x:\n  # c\n  while f(\n    {A},\n    {B},\n    {C},\n  ):  # d\n"
        "    a  =  1\n  else: b  =  2\n",
        id="the-head-of-a-block-only",
    ),
    pytest.param(
        f"if f({A}):\n    pass\nelif f({A},  {B}, y):\n    a  =  1\n",
        [("replace", "y", C)],
        f"if f({A}):\n    pass\nelif f(\n    {A},\n    {B},\n    {C},\n):\n    a  =  1\n",
        id="elif",
    ),
    pytest.param(
        f"x = f('''\n{A}{A}{A}{A}{A}\n''',  y)\n",
        [("replace", "y", "z")],
        f"x = f('''\n{A}{A}{A}{A}{A}\n''',  z)\n",
        id="the-long-line-is-anothers",
    ),
    pytest.param(
        f"try: pass\nexcept (E, {A}, {B}): pass\n",
        [("replace", "E", C)],
        f"try: pass\nexcept ({C}, {A}, {B}): pass\n",
        id="not-the-clauses-of-try",
    ),
    pytest.param(
        f"f({A}, {B}, y)\n",
        [("replace", "y", "g({})"), ("gate", f"f({A}, {B}, y)", "m()")],
        f"if m():\n    f({A}, {B}, g(y))\n",
        id="gated-still-fits",
    ),
    pytest.param(
        "x = f(\n    a,\n    b,\n)\n",
        [("replace", "f(\n    a,\n    b,\n)", "g({})")],
        "x = g(\n    f(\n        a,\n        b,\n    )\n)\n",
        id="or-what-black-laid-out",
    ),
    pytest.param(
        "x = f(a,\n      b)\n",
        [("replace", "f(a,\n      b)", "g({})")],
        "x = g(f(a,\n      b))\n",
        id="not-what-it-did-not",
    ),
]


@pytest.mark.parametrize(("text", "edits", "expected"), LONG)
def test_only_what_grew_too_long_is_formatted(
    text: str, edits: list[tuple[str, ...]], expected: str
) -> None:
    assert rewritten(text, *edits) == expected


def test_what_black_cannot_read_stays_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise InvalidInput("no")

    monkeypatch.setattr(black, "format_str", refuse)
    assert rewritten("x = a\n", ("replace", "a", A + B + C)) == f"x = {A}{B}{C}\n"


def test_the_projects_line_length_and_quotes() -> None:
    style = Style(line_length=40, skip_string_normalization=True)
    spec = ("before", "x", "some_function('argument_one', argument_two)")
    expected = "some_function(\n    'argument_one', argument_two\n)\nx\n"
    assert rewritten("x\n", spec, style=style) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            ("argument", "f(a)", "", "b"), "no keyword 'b' to remove", id="nothing-to-remove"
        ),
        pytest.param(("argument", "f(a)", "g({})", "b"), "could hold", id="nothing-to-wrap"),
        pytest.param(("argument", "f(a)", "1 +", "b"), "not an expression", id="broken-value"),
        pytest.param(("argument", "a", "1", "b"), "no expression", id="not-a-call"),
        pytest.param(("before", "x = f(a)", "y ="), "not valid code", id="broken-code"),
        pytest.param(("gate", "x = f(a)", "y ="), "not valid code", id="broken-test"),
        pytest.param(("before", "x = f(a)", "# note"), "no statement", id="only-a-comment"),
        pytest.param(("indent", "x = f(a)", "def f()"), "not the head", id="not-a-head"),
        pytest.param(("after", "x = f(a)", "return"), "not valid", id="does-not-compile"),
        pytest.param(("replace", "x = f(a)", "y = {}"), "expression statement", id="no-value"),
    ],
)
def test_what_a_rule_got_wrong_is_named(spec: tuple[str, ...], message: str) -> None:
    source = source_of("x = f(a)\n")
    with pytest.raises(RewriteError, match=message) as caught:
        changes(source, [edit(source, *spec)])
    assert caught.value.path == "main.py"
    assert caught.value.rules == ("R0",)
