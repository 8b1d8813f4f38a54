"""What a section of a configuration has a library make: an object of a class, with its arguments.

Several files may write the same section, of which the command line chooses, or which lie over each
other. So a section is all nodes that are written for it, and any class named there may be meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ddpify.configs.nodes import ConfigNode
from ddpify.site import Site

TARGETS: Final = ("_target_", "class_path")  # of hydra, of LightningCLI
_GIVEN: Final = ("init_args", "dict_kwargs")
Follow = Callable[[ConfigNode], Iterable[ConfigNode]]


@dataclass(frozen=True)
class Recipe:
    """A class (or a function) that is called.

    ``given`` are its arguments, of which those that are objects themselves have recipes; ``texts``:
    what is written for the others. ``partial``: it is not called yet; ``plain``: what it is given
    stays a configuration. ``part``: it is made for another thing, or among others.
    """

    target: str
    site: Site
    given: dict[str, tuple[Recipe, ...]] = field(default_factory=dict)
    texts: dict[str, frozenset[str]] = field(default_factory=dict)
    partial: bool = False
    plain: bool = False
    part: bool = False


def recipes(nodes: Iterable[ConfigNode], follow: Follow) -> tuple[Recipe, ...]:
    """The recipes of a section, one per class; those of its parts where it names none.

    ``follow``: the nodes that are meant by one, which may only refer to another.
    """
    meant = [one for node in nodes for one in follow(node)]
    found = {one.text: one for node in meant for one in _named(node) if one.text}
    if not found:
        parts = [one for node in meant for one in (*node.entries.values(), *node.items)]
        inner = (made for one in parts if one.text is None for made in recipes([one], follow))
        return tuple(replace(one, part=True) for one in inner)
    given: dict[str, list[ConfigNode]] = {}
    for name, value in (pair for node in meant for pair in _arguments(node)):
        given.setdefault(name, []).append(value)
    arguments = {
        name: tuple(replace(one, part=True) for one in recipes(nodes, follow))
        for name, nodes in given.items()
    }
    texts = {name: frozenset(n.text or "" for n in nodes) for name, nodes in given.items()}
    return tuple(
        Recipe(target, one.site, arguments, texts, _says(meant, "_partial_"), _is_plain(meant))
        for target, one in found.items()
    )


def _named(node: ConfigNode) -> Iterator[ConfigNode]:
    return (node.entries[name] for name in TARGETS if name in node.entries)


def _arguments(node: ConfigNode) -> Iterator[tuple[str, ConfigNode]]:
    if any(name in node.entries for name in _GIVEN) or "class_path" in node.entries:
        for name in _GIVEN:
            yield from node.entries[name].entries.items() if name in node.entries else ()
        return
    own = ("defaults", *TARGETS)
    yield from (one for one in node.entries.items() if one[0][0] != "_" and one[0] not in own)


def _says(nodes: Iterable[ConfigNode], name: str, value: str = "true") -> bool:
    written = (node.entries[name] for node in nodes if name in node.entries)
    return any((one.text or "").lower() == value for one in written)


def _is_plain(nodes: Iterable[ConfigNode]) -> bool:
    return _says(nodes, "_recursive_", "false")
