"""Whole files: new ones, launchers, files that must not be touched, and what is compiled."""

from __future__ import annotations

import pytest

from ddpify.plan import Plan, PlannedEdit
from ddpify.rewrite import ReadOnlySource, RewriteError, render
from ddpify.rules.base import Edit, How, Import
from ddpify.source import Site, Source, Span
from tests.text.edits import START, changes, edit, source_of


def planned(*edits: Edit) -> Plan:
    return Plan(tuple(PlannedEdit(one, "R", "reason") for one in edits))


def new_file(code: str, path: str = "ddp.py") -> Edit:
    return Edit(How.NEW_FILE, Site(path, START), code)


def text_edit(line: int, column: int, end: int, code: str) -> Edit:
    return Edit(How.TEXT, Site("run.sh", Span(line, column, line, end)), code)


def launcher(text: str) -> Source:
    return source_of(text, "run.sh")


def test_a_new_file() -> None:
    (change,) = render(planned(new_file("x = 'é'\n")), {})
    assert (change.path, change.before, change.after) == ("ddp.py", None, "x = 'é'\n".encode())
    assert [one.rule for one in change.edits] == ["R"]


@pytest.mark.parametrize("raw", [b"x = 'a'\n", b"\xef\xbb\xbfx = 'a'\n"])
def test_a_file_that_is_there_already_is_no_change(raw: bytes) -> None:
    assert render(planned(new_file("x = 'a'\n")), {"ddp.py": source_of(raw, "ddp.py")}) == ()


def test_a_file_with_other_content_is_replaced() -> None:
    (change,) = render(planned(new_file("x = 1\n")), {"ddp.py": source_of("x = 2\n", "ddp.py")})
    assert (change.before, change.after) == (b"x = 2\n", b"x = 1\n")


def test_a_new_file_must_compile() -> None:
    with pytest.raises(RewriteError, match=r"ddp\.py: R: the result is not valid"):
        render(planned(new_file("x = \n")), {})


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        pytest.param(
            "python a.py\npython b.py\n",
            [text_edit(1, 0, 6, "torchrun"), text_edit(2, 0, 6, "torchrun --x {}")],
            "torchrun a.py\ntorchrun --x {} b.py\n",
            id="two-lines",
        ),
        pytest.param(
            "python a.py | python b.py",
            [text_edit(1, 0, 6, "longer-than-it"), text_edit(1, 14, 20, "x")],
            "longer-than-it a.py | x b.py",
            id="two-on-a-line",
        ),
        pytest.param("a\r\nb\r\n", [text_edit(2, 0, 1, "c\nd")], "a\r\nc\r\nd\r\n", id="crlf"),
        pytest.param("a\rb", [text_edit(2, 1, 1, "c")], "a\rbc", id="cr-and-insertion"),
        pytest.param("é = $ü x", [text_edit(1, 4, 6, "y")], "é = y x", id="characters"),
    ],
)
def test_text(text: str, edits: list[Edit], expected: str) -> None:
    source = launcher(text)
    (change,) = render(planned(*edits), {"run.sh": source})
    assert change.after == expected.encode()
    assert change.before == source.raw


@pytest.mark.parametrize("span", [(2, 0, 1), (1, 0, 9), (0, 0, 0)])
def test_a_text_span_outside_the_file_is_a_bug(span: tuple[int, int, int]) -> None:
    with pytest.raises(RewriteError, match="outside"):
        render(planned(text_edit(*span, "x")), {"run.sh": launcher("a")})


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param((text_edit(1, 0, 1, "x"), new_file("x", "run.sh")), id="new-and-text"),
        pytest.param((new_file("x", "run.sh"), new_file("y", "run.sh")), id="two-new"),
    ],
)
def test_edits_of_different_kinds_do_not_mix(edits: tuple[Edit, ...]) -> None:
    with pytest.raises(RewriteError, match="different kinds"):
        render(planned(*edits), {"run.sh": launcher("a")})


def test_an_unknown_file_is_a_bug() -> None:
    with pytest.raises(RewriteError, match="no such file"):
        render(planned(text_edit(1, 0, 1, "x")), {})


READ_ONLY = [
    pytest.param(b"use()\rx = 1\r", "line ends", id="lone-cr"),
    pytest.param(b"use()\n\x0cx = 1\n", "white space", id="form-feed-before-code"),
    pytest.param(b"use()\n(x): int = 1\n", "libcst cannot parse line 2", id="libcst-fails"),
    pytest.param(b"use()\nreturn\n", "does not compile", id="does-not-compile"),
]


@pytest.mark.parametrize(("raw", "why"), READ_ONLY)
def test_a_file_that_would_not_survive_is_read_only(raw: bytes, why: str) -> None:
    source = source_of(raw)
    with pytest.raises(ReadOnlySource, match=why) as caught:
        changes(source, [edit(source, "gate", "use()", "main()")])
    assert caught.value.path == "main.py"
    assert str(caught.value).startswith("main.py: cannot be rewritten")


def test_a_read_only_file_without_edits_does_not_matter() -> None:
    assert render(Plan(()), {"main.py": source_of(b"a\rb\r")}) == ()


def test_an_edit_that_changes_nothing_is_no_change() -> None:
    source = source_of("x = a\n")
    assert changes(source, [edit(source, "replace", "a", "a")]) == ()


def test_code_that_the_encoding_lacks_is_named() -> None:
    source = source_of(b"# coding: ascii\nuse()\n")
    with pytest.raises(RewriteError, match="cannot be written in ascii"):
        changes(source, [edit(source, "before", "use()", "x = 'é'")])


@pytest.mark.parametrize(
    ("how", "span"),
    [
        pytest.param(How.REPLACE, Span(1, 1, 1, 3), id="expression"),
        pytest.param(How.GATE, Span(1, 0, 1, 1), id="statement"),
        pytest.param(How.GATE, Span(4, 0, 5, 8), id="elif"),
    ],
)
def test_an_edit_without_a_place_names_its_line(how: How, span: Span) -> None:
    source = source_of("use()\nif a:\n    pass\nelif b:\n    pass\n")
    one = Edit(how, Site("main.py", span), "x")
    with pytest.raises(RewriteError, match=rf"main\.py:{span.line}: R: no place"):
        render(planned(one), {"main.py": source})


def test_an_edit_inside_a_lost_argument_is_not_dropped_silently() -> None:
    source = source_of("f(a=g(x))\n")
    edits = [edit(source, "argument", "f(a=g(x))", "1", "a"), edit(source, "replace", "x", "y")]
    with pytest.raises(RewriteError, match="inside a value that is replaced"):
        changes(source, edits)


def test_broken_code_with_a_taken_name_is_named() -> None:
    source = source_of("main = 1\nuse()\n")
    one = edit(source, "before", "use()", "main( =", "", "ddp.main")
    with pytest.raises(RewriteError, match="not valid code"):
        changes(source, [one])


def test_several_files_come_in_order_of_their_paths() -> None:
    sources = {path: source_of("use()\n", path) for path in ("b.py", "a/z.py", "c.py")}
    edits = [edit(source, "gate", "use()", "main()") for source in sources.values()]
    made = render(planned(*edits[:2]), sources)
    assert [change.path for change in made] == ["a/z.py", "b.py"]


def test_a_change_keeps_the_edits_as_the_rules_gave_them() -> None:
    source = source_of("main = 1\nuse()\n")
    one = edit(source, "gate", "use()", "main()", "", "ddp.main")
    (change,) = changes(source, [one])
    assert change.edits[0].edit == one
    assert change.edits[0].edit.imports == (Import("ddp", "main"),)
