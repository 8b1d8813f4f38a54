"""What both readers know of Python, asked directly."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddpify.python.arguments import bind, defaults
from ddpify.python.classes import linearized
from ddpify.python.fields import fields, parameters
from ddpify.python.imports import Finder, added_folders, exported
from ddpify.python.targets import places
from tests.projects import put


def spec(text: str) -> ast.arguments:
    """The parameters of `def f(text)`."""
    (made,) = ast.parse(f"def f({text}): ...").body
    assert isinstance(made, ast.FunctionDef)
    return made.args


def test_a_positional_only_parameter_leaves_its_name_to_the_keywords() -> None:
    bound = bind(spec("a, /, b, *rest, c, **more"), [1, 2, 3], {"a": 4, "c": 5})
    assert bound.given == {"a": 1, "b": 2, "c": 5}
    assert (bound.rest, bound.keywords, bound.missing) == ((3,), {"a": 4}, ())


def test_defaults_belong_to_the_last_parameters() -> None:
    found = defaults(spec("a, b=1, /, c=2, *, d, e=3"), [1, 2], [None, 3])
    assert found == {"b": 1, "c": 2, "e": 3}
    assert bind(spec("a, b=1, *, d"), [0], {}).missing == ("b", "d")


def test_bases_of_a_diamond_come_after_both_sides() -> None:
    bases = {"D": ["B", "C"], "B": ["A"], "C": ["A"], "A": []}
    assert linearized("D", bases.__getitem__) == ["D", "B", "C", "A"]


def test_bases_that_contradict_each_other_come_depth_first() -> None:
    bases = {"D": ["B", "C"], "B": ["X", "Y"], "C": ["Y", "X"], "X": [], "Y": []}
    assert linearized("D", bases.__getitem__) == ["D", "B", "X", "Y", "C"]


def test_a_class_that_inherits_itself_ends() -> None:
    assert linearized("A", {"A": ["B"], "B": ["A"]}.__getitem__)[:2] == ["A", "B"]


def test_fields_of_bases_come_first_and_class_variables_are_none() -> None:
    text = (
        "class A:\n    a: int\n    known: ClassVar[int] = 1\n"
        'class B(A):\n    b: int = field(init=False)\n    c: "InitVar[int]" = 2\n'
        "    _: KW_ONLY\n    d: int = 3\n"
    )
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    found = fields(classes, lambda _, func: ast.unparse(func) == "field")
    assert [field.name for field in found] == ["a", "b", "c", "d"]
    assert parameters(found) == ["a", "c"]
    assert [field.name for field in found if not field.kept] == ["c"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a, b", [(0, None), (1, None)]),
        ("*a, b", [(0, 1), (-1, None)]),
        ("a, *b", [(0, None), (1, 0)]),
        ("a, *b, c, d", [(0, None), (1, 2), (-2, None), (-1, None)]),
    ],
)
def test_targets_take_their_places(text: str, wanted: list[tuple[int, int | None]]) -> None:
    (made,) = ast.parse(f"{text} = x").body
    assert isinstance(made, ast.Assign)
    assert isinstance(made.targets[0], ast.Tuple)
    assert [(place.start, place.end) for place in places(made.targets[0].elts)] == wanted


def test_imports_find_their_files(tmp_path: Path) -> None:
    files = {"src/tools/__init__.py": "", "bare/deep/feeds.py": "", "data.py": "", "sub/run.py": ""}
    put(files, tmp_path)
    finder = Finder(tmp_path)
    home = tmp_path / "sub"
    assert finder.absolute(home, "data") == tmp_path / "data.py"
    assert finder.absolute(home, "tools") == tmp_path / "src/tools/__init__.py"
    assert finder.absolute(home, "bare.deep.feeds") == tmp_path / "bare/deep/feeds.py"
    assert finder.absolute(home, "bare.deep") is None
    assert finder.package(home, "bare") == tmp_path / "bare"
    assert finder.package(home, "torch") is None
    assert finder.relative(tmp_path / "bare/deep/feeds.py", 3, "data") == tmp_path / "data.py"


def test_files_that_are_not_saved_yet_are_found(tmp_path: Path) -> None:
    new = tmp_path / "core" / "ddp_utils.py"
    assert Finder(tmp_path, {new}).absolute(tmp_path, "core.ddp_utils") == new


@pytest.mark.parametrize(
    "text",
    [
        'sys.path.append("lib")',
        'sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))',
        'sys.path.append(str(Path(__file__).resolve().parent / "lib"))',
    ],
)
def test_folders_that_a_program_adds_are_read_from_the_text(text: str, tmp_path: Path) -> None:
    found = added_folders(ast.parse(text), tmp_path / "main.py", tmp_path)
    assert found == [(tmp_path / "lib").resolve()]


def test_a_folder_that_is_computed_is_not_guessed(tmp_path: Path) -> None:
    assert not added_folders(ast.parse("sys.path.append(args.lib)"), tmp_path / "m.py", tmp_path)


def test_all_is_read_where_it_is_written_out() -> None:
    assert exported(ast.parse('__all__ = ["a", "_b"]').body) == ["a", "_b"]
    assert exported(ast.parse("__all__ = other.__all__").body) is None
    assert exported(ast.parse("a = 1").body) is None
