"""Objects that a configuration names the class of: ``hydra.utils.instantiate(cfg.model)``.

What hydra hands to a program is a thing of kind "config", which knows where in the configuration it
stands. Several files may name a class: each of them may be meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ddpify.configs.programs import folder_of, located
from ddpify.configs.recipes import Recipe
from ddpify.configs.trees import ConfigTree, of_hydra
from ddpify.python import words as names
from ddpify.ranks import naming
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.recording import record
from ddpify.ranks.results import result
from ddpify.ranks.values import constant, merge, symbol
from ddpify.ranks.words import LOADER, TRAINER, canonical
from ddpify.site import Site

KIND: Final = "config"
CALLS: Final = ("hydra.utils.instantiate", "hydra.utils.call")
_ONES: Final = ("1", "[0]")
_METHODS: Final = frozenset("get pop items values keys copy merge_with setdefault update".split())


@dataclass(frozen=True)
class ConfigPlace:
    """A path in a configuration."""

    tree: ConfigTree
    path: tuple[str, ...] = ()

    def made(self) -> tuple[Recipe, ...]:
        return self.tree.made(self.path)


def root(m: RankMachine, info: FunctionDefinition, name: str, site: Site) -> RankThing | None:
    """What hydra gives the function that it starts."""
    first = info.parameters[:1] == (name,)
    folder = folder_of(info.node, info.module.file, info.module.tree) if first else None
    if folder is None:
        return None
    tree = m.modules.configs.get(folder)
    if tree is None:
        tree = m.modules.configs[folder] = of_hydra(folder, m.modules.root)
    return RankThing(KIND, name, site, info=ConfigPlace(tree))


def child(thing: RankThing, name: str) -> ConfigPlace | None:
    """The place of ``cfg.name``."""
    place = thing.info if thing.kind == KIND and name not in _METHODS else None
    return ConfigPlace(place.tree, (*place.path, name)) if isinstance(place, ConfigPlace) else None


def entry(
    m: RankMachine, f: RankFrame, base: RankValue, key: RankValue, node: ast.expr
) -> RankValue | None:
    """``cfg.get("model")``, ``cfg["model"]``."""
    known = isinstance(key.constant, str) and any(t.kind == KIND for t in base.things)
    return m.attribute(f, base, str(key.constant), node) if known else None


def asked(m: RankMachine, f: RankFrame, one: RankCall, base: RankValue) -> RankValue | None:
    """The same by ``cfg.get``."""
    known = one.method in ("get", "pop") and one.args
    return entry(m, f, base, one.args[0], one.node.func) if known else None


def instantiated(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """What hydra makes of a section; None where that is not followed."""
    section = one.arg(0, "config")
    if section is None:
        return None
    places = [t.info for t in section.things if t.kind == KIND]
    wanted = [recipe for place in places for recipe in place.made()]
    if not wanted:  # `for name, each in cfg.callbacks.items()`: an entry of it
        below = {t for t in section.made_from if t.kind == KIND and t.info.path}
        wanted = [recipe for t in _inmost(below) for recipe in t.info.made()]
    given = {name: value for name, value in one.kwargs.items() if name[:1] != "_"}
    return value_of(m, f, Given(one.node, kwargs=given), wanted) if wanted else None


def _inmost(things: Iterable[RankThing]) -> list[RankThing]:
    """The things that no other one is a part of."""
    found = {thing.info.path: thing for thing in things}
    above = {path[:n] for path in found for n in range(len(path))}
    return [found[path] for path in sorted(found) if path not in above]


def value_of(m: RankMachine, f: RankFrame, given: Given, wanted: Iterable[Recipe]) -> RankValue:
    """What is made: any of these."""
    made = [
        symbol("loader") if recipe.part and _is_loader(recipe) else _made(m, f, given, recipe)
        for recipe in wanted
    ]
    return merge(f"instantiate@{f.module.site(given.node)}", (made, made), frozenset())


def arguments(
    m: RankMachine, f: RankFrame, given: Given, parts: dict[str, tuple[Recipe, ...]]
) -> dict[str, RankValue]:
    """The arguments that a configuration gives; of values only that they are there."""
    return {
        name: value_of(m, f, Given(given.node), inner) if inner else symbol(f"config.{name}")
        for name, inner in parts.items()
    }


def _is_loader(recipe: Recipe) -> bool:
    """Whether a file makes a loader: in the midst of other things nothing can deal its batches."""
    return not recipe.partial and canonical(recipe.target) == LOADER


def _made(m: RankMachine, f: RankFrame, given: Given, recipe: Recipe) -> RankValue:
    parts = {name: () if recipe.plain else inner for name, inner in recipe.given.items()}
    parts = {name: inner for name, inner in parts.items() if name not in given.kwargs}
    callee = named(m, f, recipe.target, given.node)
    known = arguments(m, f, given, parts)
    if TRAINER in callee.names() and "devices" in known and is_one(recipe.texts["devices"]):
        known["devices"] = constant(1)
    whole = Given(given.node, kwargs={**known, **given.kwargs})
    if recipe.partial:
        one = record(m, f, names.PARTIAL, Given(given.node, args=(callee,), kwargs=whole.kwargs))
        one.result = result(one)
        return one.result
    return m.call_value(f, callee, whole)


def is_one(texts: Iterable[str]) -> bool:
    """Whether all files that say a number of devices say one."""
    return all(text in _ONES for text in texts)


def named(m: RankMachine, f: RankFrame, target: str, node: ast.Call) -> RankValue:
    """The class, or function, that a dotted name is."""
    found = located(target, lambda dotted: m.modules.find(f.module.file, dotted, 0))
    if "." not in target:  # LightningCLI knows classes that are imported by their names
        m.modules.ordered = True
        holders = [one for one in m.modules.loaded.values() if one and target in one.classes]
        return naming.global_name(m, holders[0], target) if len(holders) == 1 else symbol(target)
    if found is None:
        return naming.external(m, target)
    dotted, rest, _ = found
    first, *others = rest.split(".")
    value = naming.imported(m, f.module, dotted, first, 0)
    for name in others:
        value = m.attribute(f, value, name, node.func)
    return value
