"""Which configurations a file's program is made of: hydra's folder, LightningCLI's files."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeGuard

from ddpify.configs.trees import ConfigTree, of_commandline, of_hydra
from ddpify.python.imports import written_path

_HYDRA: Final = "hydra"
_COMMANDLINE: Final = "LightningCLI"
_LIGHTNING: Final = r"(?:lightning(?:\.pytorch)?|pytorch_lightning)"
_TRAINER: Final = re.compile(rf"{_LIGHTNING}(?:\.trainer)*\.Trainer")
Find = Callable[[str], Path | None]


def says(text: str) -> bool:
    """Whether a file may start a program that is made of configurations."""
    return _HYDRA in text or _COMMANDLINE in text


def trees_of(file: Path, text: str, root: Path) -> Iterator[ConfigTree]:
    """The configurations of the programs that a file starts."""
    if not says(text):
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree) if _HYDRA in text else ():
        if isinstance(node, ast.FunctionDef) and (folder := folder_of(node, file, tree)):
            yield of_hydra(folder, root)
    if f"{_COMMANDLINE}(" in text or f"({_COMMANDLINE})" in text:
        yield of_commandline(root)


def folder_of(function: ast.AST, file: Path, tree: ast.AST) -> Path | None:
    """The folder that ``@hydra.main(config_path="…")`` above a function of a module names."""
    place = decorator_of(function)
    path = _argument(place, "config_path", tree) if place is not None else None
    said = written_path(tree, file, path) if path is not None else None
    return (file.parent / said).resolve() if said is not None else None


def _argument(call: ast.Call, name: str, tree: ast.AST) -> ast.expr | None:
    """An argument of a call, which may be given it by ``**OPTIONS``, a dict of the file."""
    for one in call.keywords:
        if one.arg == name:
            return one.value
        if one.arg is None and isinstance(one.value, ast.Name):
            given = [n.value for n in ast.walk(tree) if _binds(n, one.value.id)]
            options = given[0] if len(given) == 1 else None
            found = entries(options)
            if name in found:
                return found[name]
    return call.args[0] if call.args and name == "config_path" else None


def entries(node: ast.AST | None) -> dict[str, ast.expr]:
    """What a dict that is written out has under names."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return {str(key.value): one for key, one in pairs if isinstance(key, ast.Constant)}


def _binds(node: ast.AST, name: str) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == [name]


def decorator_of(function: ast.AST) -> ast.Call | None:
    """``@hydra.main(…)`` above a function."""
    for one in getattr(function, "decorator_list", ()):
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "hydra.main":
            return one
    return None


def section(node: ast.expr | None) -> tuple[str, ...]:
    """``("trainer",)`` of ``cfg.trainer``, ``cfg["trainer"]`` and ``cfg.get("trainer")``."""
    names: list[str] = []
    while node is not None and not isinstance(node, ast.Name):
        name, node = _step(node)
        names += [name] if name else []
    return tuple(reversed(names))


def _step(node: ast.expr) -> tuple[str, ast.expr | None]:
    """The last name of an expression, and what it is taken from."""
    if isinstance(node, ast.Attribute):
        return node.attr, node.value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value), node.value
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(func, ast.Attribute) and func.attr == "get":
        key = node.args[0] if node.args else None
        return (str(key.value) if isinstance(key, ast.Constant) else ""), func.value
    return "", None


def trainer_in(tree: ConfigTree, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a section that makes a Trainer, whatever holds the configuration."""
    for number in range(len(path)):
        made = tree.made(path[number:])
        if made and all(_TRAINER.fullmatch(one.target) for one in made):
            return path[number:]
    return ()


def located(target: str, find: Find) -> tuple[str, str, Path] | None:
    """The module of the project that a dotted name is in, the rest of the name, and its file."""
    parts = target.split(".")
    for number in range(len(parts) - 1, 0, -1):
        dotted = ".".join(parts[:number])
        file = find(dotted)
        if file is not None:
            return dotted, ".".join(parts[number:]), file
    return None
