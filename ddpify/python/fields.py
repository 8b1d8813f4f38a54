"""The fields of data classes and named tuples: which there are, in which order, by what default."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """A field; ``owner`` is the class that writes it.

    ``default`` and ``factory`` are expressions. A field that is not ``given`` is no parameter, one
    that is not ``kept`` (``InitVar``) is handed to ``__post_init__`` only.
    """

    name: str
    owner: ast.ClassDef
    default: ast.expr | None = None
    factory: ast.expr | None = None
    given: bool = True
    kept: bool = True
    keyword_only: bool = False


def fields(
    bases_first: Iterable[ast.ClassDef], is_field: Callable[[ast.ClassDef, ast.expr], bool]
) -> tuple[Field, ...]:
    """The fields of a class, those of its bases first, as its parameters are ordered.

    ``is_field(owner, func)``: whether what is called there is ``dataclasses.field``.
    """
    found: dict[str, Field] = {}
    for owner in bases_first:
        keyword_only = False
        for node in owner.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            said = _head(node.annotation)
            keyword_only = keyword_only or said == "KW_ONLY"
            if said not in ("ClassVar", "KW_ONLY"):
                made = _field(owner, node.target.id, node.value, is_field)
                found[made.name] = Field(
                    **{**vars(made), "kept": said != "InitVar", "keyword_only": keyword_only}
                )
    return tuple(found.values())


def _field(
    owner: ast.ClassDef,
    name: str,
    value: ast.expr | None,
    is_field: Callable[[ast.ClassDef, ast.expr], bool],
) -> Field:
    if not isinstance(value, ast.Call) or not is_field(owner, value.func):
        return Field(name, owner, value)
    said = {keyword.arg: keyword.value for keyword in value.keywords}
    init = said.get("init")
    given = not (isinstance(init, ast.Constant) and init.value is False)
    return Field(name, owner, said.get("default"), said.get("default_factory"), given)


def parameters(found: Iterable[Field]) -> list[str]:
    """The names of the fields that positional arguments go to, in order."""
    return [field.name for field in found if field.given and not field.keyword_only]


def _head(annotation: ast.expr) -> str:
    """``ClassVar`` of ``typing.ClassVar[int]``, quoted or not."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.partition("[")[0].rpartition(".")[2].strip()
    node = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return ast.unparse(node).rpartition(".")[2]


def field_names(text: str) -> list[str]:
    """The names in ``namedtuple("Point", "x y")`` or ``"x, y"``."""
    return text.replace(",", " ").split()


def named_tuple_class(name: str, names: Iterable[str], at: ast.AST) -> ast.ClassDef:
    """The class that ``namedtuple(name, names)`` makes, as if it were written out ``at`` a node."""
    body = "".join(f"\n    {field}: object" for field in names) or "\n    pass"
    shown = name if name.isidentifier() else "_"
    made = ast.parse(f"class {shown}:{body}\n").body[0]
    assert isinstance(made, ast.ClassDef)
    for node in ast.walk(made):
        if isinstance(node, (ast.stmt, ast.expr)):
            ast.copy_location(node, at)
    return made
