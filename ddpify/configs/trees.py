"""The configurations of a program: what is written at a path, in all files that may be chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ddpify.configs.nodes import ConfigNode, parsed
from ddpify.configs.recipes import TARGETS, Recipe, recipes
from ddpify.roots import files_below

_PACKAGE: Final = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
_REFERENCE: Final = re.compile(r"\$\{([\w.]+)\}")
_COMMANDS: Final = ("fit", "validate", "test", "predict")  # a file may hold a section for each
_SECTIONS: Final = ("trainer", "model", "data")
Placed = tuple[tuple[str, ...], ConfigNode]


@dataclass(frozen=True)
class ConfigTree:
    """The files, each with the path at which its content lies."""

    placed: tuple[Placed, ...] = ()

    @property
    def files(self) -> frozenset[str]:
        """The files that were read."""
        return frozenset(node.site.path for _, node in self.placed)

    @property
    def elsewhere(self) -> tuple[ConfigNode, ...]:
        """What names other folders of hydra's configurations."""
        return self.at(("hydra", "searchpath"))

    def at(self, path: tuple[str, ...]) -> tuple[ConfigNode, ...]:
        """What is written at a path, a file at a time."""
        found = []
        for package, node in self.placed:
            if package == path[: len(package)]:
                one = node.at(*path[len(package) :])
                found += [one] if one is not None else []
            elif path == package[: len(path)]:  # the file holds a part of it
                found.append(_within(package[len(path) :], node))
        return tuple(found)

    def made(self, path: tuple[str, ...]) -> tuple[Recipe, ...]:
        """What the section at a path has made."""
        return recipes(self.at(path), self._followed)

    def targets(self) -> tuple[str, ...]:
        """All classes that are named."""
        found = (
            node.entries[name].text or ""
            for _, top in self.placed
            for node in top.all()
            for name in TARGETS
            if name in node.entries
        )
        return tuple(dict.fromkeys(one for one in found if one))

    def _followed(self, node: ConfigNode, depth: int = 4) -> Iterator[ConfigNode]:
        """A node, or those that ``${model.net}`` refers to."""
        found = _REFERENCE.fullmatch(node.text or "")
        if found is None or not depth:
            yield node
            return
        for one in self.at(tuple(found[1].split("."))):
            yield from self._followed(one, depth - 1)


def _within(path: tuple[str, ...], node: ConfigNode) -> ConfigNode:
    for name in reversed(path):
        node = ConfigNode(node.site, entries={name: node})
    return node


def of_hydra(folder: Path, root: Path) -> ConfigTree:
    """The configurations below the folder that ``@hydra.main(config_path=…)`` names.

    Each lies where its group says, its first line (``# @package``), or who chooses it
    (``- adam@model.optimizer``).
    """
    files = _read(files_below(folder, ".yaml", ".yml") if folder.is_dir() else (), root)
    placed: list[Placed] = []
    elsewhere: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    groups = {}
    for file, (text, node) in files.items():
        group = groups[file] = file.parent.relative_to(folder).parts
        package = _package(text, group)
        placed.append((package, node))
        elsewhere += _moved(node, group, package)
    for chosen, at in dict.fromkeys(elsewhere):
        placed += [(at, files[file][1]) for file, group in groups.items() if group == chosen]
    return ConfigTree(tuple(placed))


def of_commandline(root: Path) -> ConfigTree:
    """The files that LightningCLI may be given: those with a section for it at the top."""
    files = _read(files_below(root, ".yaml", ".yml"), root)
    placed: list[Placed] = []
    for file, (_, node) in files.items():
        for top in (node, *(node.entries[one] for one in _COMMANDS if one in node.entries)):
            if _is_given(top):
                placed.append(((), top))
                placed += _parts(file, top, files)
    return ConfigTree(tuple(placed))


def _is_given(node: ConfigNode) -> bool:
    """Whether a mapping has sections of LightningCLI, and is not hydra's."""
    sections = [node.entries[one] for one in _SECTIONS if one in node.entries]
    trainer = node.entries.get("trainer")
    hydra = "defaults" in node.entries or any("_target_" in one.entries for one in sections)
    return bool(sections) and not hydra and (trainer is None or not trainer.items)


def _parts(
    file: Path, top: ConfigNode, files: dict[Path, tuple[str, ConfigNode]]
) -> Iterator[Placed]:
    """``model: unet.yaml``: a section in a file of its own."""
    for name in _SECTIONS:
        text = top.entries[name].text if name in top.entries else None
        other = files.get((file.parent / text).resolve()) if text else None
        if other is not None:
            yield (name,), other[1]


def _read(paths: Iterable[Path], root: Path) -> dict[Path, tuple[str, ConfigNode]]:
    """The texts and trees of files; one that is no YAML is none that a program could read."""
    files = {}
    for file in paths:
        path = file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()
        try:
            text = file.read_bytes().decode()
            node = parsed(path, text)
        except (OSError, ValueError):
            continue
        if node is not None:
            files[file.resolve()] = (text, node)
    return files


def _package(text: str, group: tuple[str, ...]) -> tuple[str, ...]:
    said = _PACKAGE.search(text)
    return _named(said[1], group, ()) if said else group


def _named(said: str, group: tuple[str, ...], parent: tuple[str, ...]) -> tuple[str, ...]:
    """The path that the name of a package is."""
    parts = tuple(said.split("."))
    if parts[0] == "_global_":
        return parts[1:]
    if parts[0] == "_group_":
        return (*group, *parts[1:])
    return (*parent, *(parts[1:] if parts[0] == "_here_" else parts))


def _moved(
    node: ConfigNode, group: tuple[str, ...], package: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The groups that a list of defaults puts elsewhere: ``- optim@model.optimizer: adam``."""
    chosen = node.entries.get("defaults")
    for one in chosen.items if chosen is not None else ():
        for said in one.entries or ([one.text] if one.text else ()):
            name, at, place = said.split(" ")[-1].partition("@")
            if not at:
                continue
            parts = tuple(part for part in name.split("/") if part)
            parts = parts if one.entries else parts[:-1]
            whole = parts if name.startswith("/") else (*group, *parts)
            yield whole, _named(place, whole, package)
