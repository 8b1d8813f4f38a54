"""The text of a vendored copy: the helpers that a project uses, and what these need.

Each definition is the same text in every project, and in the same order; the ones that nothing
calls are left out, with the imports that only they need. A copy of everything would be twice as
long as what the median project calls, and is what a reviewer has to read.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

_SECTION = "# ---- "
_HEAD = ""  # before the first section: type variables


@dataclass(frozen=True)
class _Part:
    """One definition: its text, the heading that it is under, and the names that it uses."""

    name: str
    section: str
    text: str
    needs: frozenset[str]


@dataclass(frozen=True, order=True)
class _Import:
    """One bound name; ``group`` sorts: future, standard library, installed, the project's."""

    group: int
    is_from: bool
    module: str
    name: str
    alias: str

    @property
    def bound(self) -> str:
        return self.alias or self.name or self.module.partition(".")[0]


def assemble(sources: Sequence[str], wanted: Collection[str]) -> str:
    """One file of what ``wanted`` need out of the ``sources``, under the first one's docstring.

    Of several sources, what one imports from another (``from .ddp_utils import …``) is in place.
    """
    trees = [ast.parse(source) for source in sources]
    parts = [part for pair in zip(sources, trees, strict=True) for part in _parts(*pair)]
    kept = _closure({part.name: part for part in parts}, wanted)
    parts = [part for part in parts if part.name in kept]
    used = {name for part in parts for name in part.needs}
    imports = {one for tree in trees for one in _imports(tree)}
    if len(sources) > 1:
        imports = {one for one in imports if not one.module.startswith(".")}
    imports = {one for one in imports if one.bound in used or one.module == "__future__"}
    assert trees[0].body[0].end_lineno
    docstring = "\n".join(sources[0].splitlines()[: trees[0].body[0].end_lineno])
    head = "\n".join(part.text for part in parts if part.section == _HEAD)
    top = [docstring, _import_block(imports), *([head] if head else [])]
    return "\n\n\n".join(["\n\n".join(top), *_under_headings(parts)]) + "\n"


def needed(source: str, wanted: Collection[str], outside: str) -> set[str]:
    """What the definitions that ``wanted`` need take from the module ``outside``."""
    tree = ast.parse(source)
    parts = {part.name: part for part in _parts(source, tree)}
    used = {name for kept in _closure(parts, wanted) for name in parts[kept].needs}
    return {one.name for one in _imports(tree) if one.module == outside and one.name in used}


def definitions(source: str) -> set[str]:
    """The names that a module defines at its top."""
    return {part.name for part in _parts(source, ast.parse(source))}


def _parts(source: str, tree: ast.Module) -> Iterable[_Part]:
    lines = source.splitlines()
    headings = [number for number, line in enumerate(lines, 1) if line.startswith(_SECTION)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name, begin = node.name, min(n.lineno for n in (node, *node.decorator_list))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, begin = node.targets[0].id, node.lineno
        else:
            continue
        above = [number for number in headings if number < begin]
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        text = "\n".join(lines[begin - 1 : node.end_lineno])
        yield _Part(name, lines[above[-1] - 1] if above else _HEAD, text, frozenset(names))


def _closure(parts: dict[str, _Part], wanted: Collection[str]) -> set[str]:
    """``wanted``, and all definitions that they call, or that these call."""
    kept: set[str] = set()
    left = [name for name in wanted if name in parts]
    while left:
        name = left.pop()
        if name not in kept:
            kept.add(name)
            left += [needed for needed in parts[name].needs if needed in parts]
    return kept


def _imports(tree: ast.Module) -> Iterable[_Import]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            for one in node.names:
                yield _Import(_group(one.name), False, one.name, "", one.asname or "")
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for one in node.names:
                yield _Import(_group(module), True, module, one.name, one.asname or "")


def _group(module: str) -> int:
    if module == "__future__":
        return 0
    return 3 if module.startswith(".") else 2 if module.partition(".")[0] == "torch" else 1


def _import_block(imports: Iterable[_Import]) -> str:
    groups: dict[int, dict[tuple[bool, str], list[str]]] = {}
    for one in sorted(imports):
        names = groups.setdefault(one.group, {}).setdefault((one.is_from, one.module), [])
        names.append((one.name or one.module) + (f" as {one.alias}" if one.alias else ""))
    blocks = []
    for lines in groups.values():
        texts = [
            f"from {module} import {', '.join(names)}" if is_from else f"import {names[0]}"
            for (is_from, module), names in lines.items()
        ]
        blocks.append("\n".join(texts))
    return "\n\n".join(blocks)


def _under_headings(parts: Iterable[_Part]) -> Iterable[str]:
    """The texts, each section's first one under its heading where there are several sections."""
    parts = [part for part in parts if part.section != _HEAD]
    several = len({part.section for part in parts}) > 1
    before = _HEAD
    for part in parts:
        begins = several and part.section != before
        yield f"{part.section}\n{part.text}" if begins else part.text
        before = part.section
