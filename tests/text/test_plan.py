"""One order, no edit twice, and nothing dropped without a name."""

from __future__ import annotations

import itertools

import pytest

from ddpify.plan import Plan
from ddpify.rules.base import Edit, Finding, How, Import
from ddpify.source import Site, Span
from tests.text.edits import START, changes, edit, finding, source_of

TEXT = "model = wrap(net(args.gpu), device=pick('cuda:0'))\nprint(model)\nif x:\n    print(x)\n"
SOURCE = source_of(TEXT)
WRAP = "wrap(net(args.gpu), device=pick('cuda:0'))"
PRINT = "print(model)"


def plan(*edits: Edit) -> Plan:
    findings = [finding(one, rule=f"R{number}") for number, one in enumerate(edits)]
    return Plan.of(findings, {"main.py": SOURCE})


def at(*spec: str) -> Edit:
    return edit(SOURCE, *spec)


def text_edit(column: int, end: int, code: str) -> Edit:
    return Edit(How.TEXT, Site("run.sh", Span(1, column, 1, end)), code)


def new_file(code: str, path: str = "ddp.py") -> Edit:
    return Edit(How.NEW_FILE, Site(path, START), code)


TOGETHER = [
    pytest.param(at("replace", WRAP, "ddp({})"), at("replace", WRAP, "net"), id="around-another"),
    pytest.param(
        at("replace", WRAP, "ddp({})"), at("replace", "net(args.gpu)", "f({})"), id="nested"
    ),
    pytest.param(
        at("replace", WRAP, "ddp({})"), at("argument", WRAP, "1", "n"), id="replace-argument"
    ),
    pytest.param(
        at("argument", WRAP, "1", "a"), at("argument", WRAP, "1", "b"), id="two-arguments"
    ),
    pytest.param(
        at("argument", WRAP, "f({})", "device"),
        at("replace", "'cuda:0'", "x"),
        id="in-kept-argument",
    ),
    pytest.param(
        at("argument", WRAP, "d", "device"), at("replace", "args.gpu", "x"), id="in-other-argument"
    ),
    pytest.param(
        at("gate", PRINT, "main()"), at("replace", "model", "m", "", ""), id="gate-replace"
    ),
    pytest.param(at("gate", PRINT, "main()"), at("before", PRINT, "x = 1"), id="gate-before"),
    pytest.param(at("gate", PRINT, "main()"), at("indent", PRINT, "with s():"), id="gate-indent"),
    pytest.param(at("before", PRINT, "x = 1"), at("before", PRINT, "y = 1"), id="two-before"),
    pytest.param(at("before", PRINT, "x = 1"), at("delete", PRINT), id="instead-of"),
    pytest.param(at("replace", PRINT, "log()"), at("after", PRINT, "x = 1"), id="replace-after"),
    pytest.param(
        at("gate", "if x…", "main()"), at("gate", "print(x)", "other()"), id="nested-gates"
    ),
    pytest.param(text_edit(0, 3, "a"), text_edit(3, 6, "b"), id="touching-texts"),
    pytest.param(new_file("x", "a.py"), new_file("y", "b.py"), id="two-files"),
]

CLASHING = [
    pytest.param(at("replace", WRAP, "a({})"), at("replace", WRAP, "b({})"), id="two-replace"),
    pytest.param(at("replace", WRAP, "a()"), at("replace", "args.gpu", "0"), id="swallows-replace"),
    pytest.param(
        at("replace", WRAP, "a()"), at("argument", WRAP, "1", "n"), id="swallows-argument"
    ),
    pytest.param(at("argument", WRAP, "1", "n"), at("argument", WRAP, "2", "n"), id="one-argument"),
    pytest.param(
        at("argument", WRAP, "d", "device"), at("replace", "'cuda:0'", "x"), id="in-lost-argument"
    ),
    pytest.param(
        at("argument", WRAP, "", "device"),
        at("replace", "pick('cuda:0')", "x"),
        id="is-lost-argument",
    ),
    pytest.param(at("gate", PRINT, "a()"), at("gate", PRINT, "b()"), id="two-gates"),
    pytest.param(at("indent", PRINT, "with a:"), at("indent", PRINT, "with b:"), id="two-indents"),
    pytest.param(at("delete", PRINT), at("gate", PRINT, "b()"), id="delete-gate"),
    pytest.param(at("delete", PRINT), at("replace", PRINT, "b()"), id="delete-replace"),
    pytest.param(at("delete", "if x…"), at("gate", "print(x)", "b()"), id="delete-around"),
    pytest.param(text_edit(0, 4, "a"), text_edit(3, 6, "b"), id="overlapping-texts"),
    pytest.param(text_edit(3, 3, "a"), text_edit(3, 3, "b"), id="two-texts-at-one-point"),
    pytest.param(new_file("x"), new_file("y"), id="two-contents"),
    pytest.param(new_file("x", "run.sh"), text_edit(0, 1, "a"), id="new-file-and-text"),
]


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_edits_that_go_together(one: Edit, other: Edit) -> None:
    for made in (plan(one, other), plan(other, one)):
        assert not made.clashes
        assert {planned.edit for planned in made.edits} == {one, other}


@pytest.mark.parametrize(("one", "other"), CLASHING)
def test_edits_that_exclude_each_other(one: Edit, other: Edit) -> None:
    for made in (plan(one, other), plan(other, one)):
        assert not made.edits
        (clash,) = made.clashes
        assert clash.rules == ("R0", "R1")
        assert clash.site.path == one.site.path
        assert "R0" in clash.message
        assert "R1" in clash.message


def test_a_clash_takes_the_whole_fix_of_both_findings_with_it() -> None:
    one = finding(at("gate", PRINT, "a()"), at("replace", "args.gpu", "0"), rule="A")
    other = finding(at("gate", PRINT, "b()"), new_file("x"), rule="B")
    third = finding(at("replace", "args.gpu", "0"), rule="C")
    made = Plan.of([one, other, third])
    assert [(planned.edit, planned.rule) for planned in made.edits] == [(third.fix[0], "C")]
    assert [clash.rules for clash in made.clashes] == [("A", "B")]


def test_identical_edits_are_made_once_and_remember_who_asked() -> None:
    gate = at("gate", PRINT, "main()", "", "ddp.main")
    again = at("gate", PRINT, "main()", "", "other.main")
    made = Plan.of([finding(gate, rule="B"), finding(gate, rule="A"), finding(again, rule="C")])
    (planned,) = made.edits
    assert (planned.rule, planned.reason) == ("B", "because of B (also A, C)")
    assert planned.edit.imports == (Import("ddp", "main"), Import("other", "main"))


def test_the_same_new_file_asked_for_at_two_places_is_one() -> None:
    elsewhere = Edit(How.NEW_FILE, Site("ddp.py", Span(9, 9, 9, 9)), "x = 1\n")
    assert len(plan(new_file("x = 1\n"), elsewhere).edits) == 1


def test_the_order_does_not_depend_on_the_findings() -> None:
    edits = [
        at("before", PRINT, "b = 1"),
        at("before", PRINT, "a = 1"),
        at("replace", "args.gpu", "0"),
        at("gate", "print(x)", "main()"),
        new_file("x", "a.py"),
    ]
    orders = {
        tuple(planned.edit for planned in plan(*some).edits)
        for some in itertools.permutations(edits)
    }
    assert len(orders) == 1
    keys = [(one.site.path, one.site.span, one.how.value, one.code) for one in orders.pop()]
    assert keys == sorted(keys)


def test_findings_without_a_fix_plan_nothing() -> None:
    advice = Finding("R", Site("a.py", START), "m", finding(new_file("x")).severity, advice="do it")
    assert Plan.of([advice]) == Plan(())


def test_long_code_is_shortened_in_a_clash() -> None:
    made = plan(at("gate", PRINT, "a" * 60), at("gate", PRINT, "b()"))
    assert "a" * 37 + "..." in made.clashes[0].message


def test_what_goes_around_goes_around_what_is_new() -> None:
    around, new = at("replace", WRAP, "ddp({})"), at("replace", WRAP, "unwrap(net)")
    for both in ((around, new), (new, around)):
        assert (
            changes(SOURCE, list(both))[0].after.decode().startswith("model = ddp(unwrap(net))\n")
        )
