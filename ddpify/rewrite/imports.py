"""Where a file gets the names its new code needs, and how that code spells them.

libcst's own visitor edits commented import lines and inserts above ``sys.path`` changes,
which a project's own helper module may need in order to be found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import libcst as cst

from ddpify.plan import PlannedEdit
from ddpify.rewrite.errors import CodeError
from ddpify.rewrite.expressions import HOLE
from ddpify.rewrite.leading import Block, leading_block
from ddpify.rules.base import Edit, How, Import
from ddpify.source import Source


@dataclass(frozen=True)
class ImportPlan:
    """What to add for one file.

    ``extended`` are numbers of module statements with the names these get, ``lines`` are
    new statements for the place that ``block`` says.
    """

    spelling: Mapping[Import, str] = field(default_factory=dict)
    extended: Mapping[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    block: Block = field(default_factory=Block)


def plan_imports(source: Source, planned: Sequence[PlannedEdit]) -> ImportPlan:
    """The imports that the edits of this file need."""
    needed = sorted({name for one in planned for name in one.edit.imports})
    if not needed:
        return ImportPlan()
    tree = source.parse()
    gone = {one.edit.site.span for one in planned if one.edit.how in (How.DELETE, How.REPLACE)}
    edits = [one.edit for one in planned if one.edit.imports]
    block = leading_block(tree, source, edits)
    usable = [
        node
        for node in tree.body[: block.limit]
        if isinstance(node, ast.ImportFrom) and source.span(node) not in gone
    ]
    spelling = _spell(needed, tree, usable)
    missing = [one for one in needed if (one, spelling[one]) not in _present(usable)]
    extended: dict[int, tuple[tuple[str, str], ...]] = {}
    lines: list[str] = []
    for module, group in groupby(missing, key=lambda one: one.module):
        names = tuple((one.name, spelling[one]) for one in group)
        host = next((node for node in usable if _can_take(node, module)), None)
        if host:
            extended[tree.body.index(host)] = names
        else:
            lines.append(f"from {module} import {', '.join(_line_items(names))}")
    return ImportPlan(spelling, extended, tuple(lines), block)


def respelled(edit: Edit, spelling: Mapping[Import, str]) -> Edit:
    """The edit with the names its file gives to its imports. Raises CodeError."""
    names = {
        one.name: spelling[one] for one in edit.imports if spelling.get(one, one.name) != one.name
    }
    if not names:
        return edit
    has_holes = edit.how in (How.REPLACE, How.ARGUMENT)
    text = edit.code.replace("{}", HOLE) if has_holes else edit.code
    head = text.rstrip().endswith(":")
    try:
        module = cst.parse_module(text.strip() + "\n    pass\n" if head else text)
    except cst.ParserSyntaxError as error:
        raise CodeError(f"not valid code: {edit.code!r}") from error
    code = module.visit(_Rename(names)).code
    if head:
        code = code.removesuffix("\n    pass\n")
    return replace(edit, code=code.replace(HOLE, "{}") if has_holes else code)


class _Rename(cst.CSTTransformer):
    """Renames variables; attributes and the keywords of calls are other people's names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self._names = names

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(
            value=self._names.get(updated_node.value, updated_node.value)
        )

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)


def _line_items(names: Sequence[tuple[str, str]]) -> list[str]:
    return [name if name == bound else f"{name} as {bound}" for name, bound in names]


def _module(node: ast.ImportFrom) -> str:
    return "." * node.level + (node.module or "")


def _can_take(node: ast.ImportFrom, module: str) -> bool:
    return _module(node) == module and all(alias.name != "*" for alias in node.names)


def _present(nodes: Sequence[ast.ImportFrom]) -> set[tuple[Import, str]]:
    return {
        (Import(_module(node), alias.name), alias.asname or alias.name)
        for node in nodes
        for alias in node.names
    }


def _spell(
    needed: Sequence[Import], tree: ast.Module, usable: Sequence[ast.ImportFrom]
) -> dict[Import, str]:
    """A free name for every import: its own, the one the file uses already, or ``ddp_…``."""
    taken = _bound_names(tree, {alias for node in usable for alias in node.names})
    present = _present(usable)
    spelling: dict[Import, str] = {}
    for one in needed:
        used = taken | set(spelling.values())
        used |= {bound for what, bound in present if what != one}
        known = sorted(bound for what, bound in present if what == one and bound not in used)
        spelling[one] = known[0] if known else _free(one.name, used)
    return spelling


def _free(name: str, used: set[str]) -> str:
    candidates = (name, f"ddp_{name}", *(f"ddp_{name}_{number}" for number in range(2, 99)))
    return next(one for one in candidates if one not in used)


def _bound_names(tree: ast.Module, imports: set[ast.alias]) -> set[str]:
    """Every name the file binds somewhere, other than by these imports.

    A star import may bind any name that the file reads.
    """
    bound = {name for node in ast.walk(tree) if node not in imports for name in _binds(node)}
    if "*" in bound:
        known = {alias.asname or alias.name for alias in imports}
        reads = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        bound |= {node.id for node in reads} - known
    return bound


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
