"""Laws on real code: what comes out means what was asked for, and the rest is untouched."""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Iterator

import pytest

from ddpify.plan import Plan
from ddpify.rewrite import Style, render
from ddpify.rules.base import Edit, How
from ddpify.source import Source, Span
from tests.text.edits import finding
from tests.text.library import part

FILES = 100
PARTS = [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 6))]
WORD = "ddpify_test"


def after(source: Source, edits: list[Edit], style: Style | None = None) -> str:
    plan = Plan.of([finding(edit) for edit in edits])
    assert not plan.clashes
    made = render(plan, {source.path: source}, style)
    return made[0].after.decode(source.encoding) if made else source.text


def parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def messages(source: Source) -> list[Edit]:
    """Gates for expression statements, as a rule would gate them. Docstrings stay."""
    return [
        Edit(How.GATE, source.site(node), f"{WORD}()")
        for node in ast.walk(source.parse())
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    ]


def is_alone(source: Source, edit: Edit) -> bool:
    """Whether the statement shares its lines with no other."""
    span = edit.site.span
    before = source.lines[span.line - 1][: span.column]
    behind = source.lines[span.end_line - 1][span.end_column :]
    return not before.strip() and not behind.partition("#")[0].strip()


def stripped(text: str) -> list[str]:
    lines = (line.strip() for line in text.replace("\r\n", "\n").split("\n"))
    return [line for line in lines if line != f"if {WORD}():"]


@pytest.mark.parametrize("number", PARTS)
def test_gating_moves_lines_and_changes_none(number: int) -> None:
    for source in part(number, len(PARTS), FILES):
        text = after(source, [edit for edit in messages(source) if is_alone(source, edit)])
        assert stripped(text) == stripped(source.text), source.path


@pytest.mark.parametrize("number", PARTS)
def test_gated_code_without_its_gates_is_the_same_program(number: int) -> None:
    for source in part(number, len(PARTS), FILES):
        tree = _Ungate().visit(parsed(after(source, messages(source))))
        assert ast.dump(tree) == ast.dump(source.parse()), source.path


class _Ungate(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Call) and ast.unparse(node.test.func) == WORD:
            return node.body
        return node


@pytest.mark.parametrize("number", PARTS)
def test_lines_without_an_edit_are_the_same_lines(number: int) -> None:
    for source in part(number, len(PARTS), 60):
        edits, inside = [], set()
        for node in some(source, (ast.Call,), 0.05):
            edits.append(Edit(How.REPLACE, source.site(node), "x.wrap({})"))
            inside.update(range(node.lineno, (node.end_lineno or 0) + 1))
        new = iter(after(source, edits, Style(10_000)).replace("\r\n", "\n").split("\n"))
        for line_number, line in enumerate(source.lines, 1):
            assert line_number in inside or line in new, f"{source.path}:{line_number}"


WRAPS = ["x.wrap({})", "({}, {})", "{} if y else z", "not {}", "-{}", "{}.inner", "{} ** y"]
KINDS = (
    *(ast.Call, ast.Attribute, ast.Name, ast.Subscript, ast.Constant, ast.Tuple, ast.List),
    *(ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Lambda, ast.Await),
    *(ast.GeneratorExp, ast.ListComp, ast.DictComp, ast.Yield),
)


@pytest.mark.parametrize("code", WRAPS)
def test_nested_replacements_mean_what_their_tree_says(code: str) -> None:
    """The same replacement made in the tree by `ast` and in the text by us."""
    for source in part(0, 1, 8):
        chosen = some(source, KINDS, 0.3)
        text = after(source, [Edit(How.REPLACE, source.site(node), code) for node in chosen])
        spans = {source.span(node) for node in chosen}
        wanted = _Replace(source, spans, code).visit(ast.parse(source.text))
        assert ast.dump(parsed(text)) == ast.dump(wanted), source.path


class _Replace(ast.NodeTransformer):
    def __init__(self, source: Source, spans: set[Span], code: str) -> None:
        self._source = source
        self._spans = spans
        self._code = code.replace("{}", WORD)

    def visit(self, node: ast.AST) -> ast.AST:
        is_chosen = isinstance(node, KINDS) and self._source.span(node) in self._spans
        new = self.generic_visit(node)
        if not is_chosen:
            return new

        class Fill(ast.NodeTransformer):
            def visit_Name(self, name: ast.Name) -> ast.AST:
                return new if name.id == WORD else name

        pattern: ast.AST = Fill().visit(parsed(self._code).body[0].value)  # type: ignore[attr-defined]
        return pattern


def some(source: Source, kinds: tuple[type[ast.expr], ...], share: float) -> list[ast.expr]:
    """A part of the expressions that may stand anywhere an expression may."""
    tree = source.parse()
    fixed = {id(child) for node in ast.walk(tree) for child in _fixed(node)}
    chance = random.Random(source.path)
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        and id(node) not in fixed
        and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        and chance.random() < share
    ]


def _fixed(node: ast.AST) -> Iterator[ast.AST]:
    """Where the grammar, or Python 3.11 inside f-strings, wants what is there."""
    match node:
        case ast.JoinedStr() | ast.MatchValue() | ast.MatchClass() | ast.MatchMapping():
            yield from ast.walk(node)
        case ast.withitem():
            yield node.context_expr
        case ast.Subscript(slice=ast.Tuple()):
            yield node.slice
        case ast.AnnAssign() | ast.ImportFrom():
            yield from ast.walk(node.target if isinstance(node, ast.AnnAssign) else node)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Module():
            yield from (child.value for child in node.body[:1] if isinstance(child, ast.Expr))


@pytest.mark.parametrize("number", PARTS)
def test_an_argument_can_be_given_to_every_call_and_taken_again(number: int) -> None:
    for source in part(number, len(PARTS), 24):
        calls = [node for node in ast.walk(source.parse()) if isinstance(node, ast.Call)]
        text = after(source, [Edit(How.ARGUMENT, source.site(one), "1", WORD) for one in calls])
        given = Source.from_bytes(source.encode(text), source.file, source.path)
        tree = given.parse()
        assert ast.dump(_WithArgument().visit(ast.parse(source.text))) == ast.dump(
            tree
        ), source.path
        again = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        back = after(given, [Edit(How.ARGUMENT, given.site(one), "", WORD) for one in again])
        assert ast.dump(parsed(back)) == ast.dump(source.parse()), source.path


class _WithArgument(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        place = next((n for n, one in enumerate(node.keywords) if one.arg is None), None)
        new = ast.keyword(WORD, ast.Constant(1))
        node.keywords.insert(len(node.keywords) if place is None else place, new)
        return node


@pytest.mark.parametrize("number", PARTS)
def test_statements_put_around_every_statement_compile(number: int) -> None:
    hows = {
        How.BEFORE: "added = 1",
        How.AFTER: "def added():\n    return {}",
        How.GATE: f"{WORD}()",
        How.INDENT: f"with {WORD}():",
        How.DELETE: "",
    }
    for source in part(number, len(PARTS), 60):
        chance = random.Random(source.path)
        edits = [
            Edit(how, source.site(node), hows[how])
            for node in _statements(source.parse())
            for how in chance.sample(list(hows), k=chance.choice([0, 0, 1]))
        ]
        Source.from_bytes(source.encode(after(source, edits)), source.file, source.path).parse()


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """What may be moved and dropped: no definitions, and not what binds names by rule."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Return | ast.Raise):
            yield node
