"""A YAML file as a tree of nodes that know where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ddpify.site import Site, Span


@dataclass(frozen=True, eq=False)
class ConfigNode:
    """A scalar (``text``), a mapping (``entries``) or a list (``items``); ``site`` is its place.

    ``key``: where its name stands, of an entry. ``flow``: it is written in braces.
    """

    site: Site
    text: str | None = None
    entries: dict[str, ConfigNode] = field(default_factory=dict)
    items: tuple[ConfigNode, ...] = ()
    key: Site | None = None
    flow: bool = False

    @property
    def aliased(self) -> bool:
        """Whether its value is written elsewhere: ``devices: *number``."""
        return self.key is not None and self.site < self.key

    def at(self, *names: str) -> ConfigNode | None:
        """The node below it that these names lead to."""
        found: ConfigNode | None = self
        for name in names:
            found = found.entries.get(name) if found is not None else None
        return found

    def all(self) -> Iterator[ConfigNode]:
        """It, and all nodes below it."""
        yield self
        for one in (*self.entries.values(), *self.items):
            yield from one.all()


@lru_cache(maxsize=4096)
def parsed(path: str, text: str) -> ConfigNode | None:
    """The tree of a file; None of one that is empty. Raises ValueError where it is not YAML."""
    import yaml  # only where there are configurations

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return None if node is None else _node(path, node, None, frozenset())


def _node(path: str, node: Any, key: Site | None, above: frozenset[int]) -> ConfigNode:
    import yaml

    site = _site(path, node)
    if id(node) in above:  # an anchor that is within itself
        return ConfigNode(site, "", key=key)
    inner = above | {id(node)}
    if isinstance(node, yaml.MappingNode):
        return ConfigNode(site, None, _entries(path, node, inner), (), key, bool(node.flow_style))
    if isinstance(node, yaml.SequenceNode):
        items = tuple(_node(path, one, None, inner) for one in node.value)
        return ConfigNode(site, None, {}, items, key, bool(node.flow_style))
    return ConfigNode(site, str(node.value), key=key)


def _entries(path: str, node: Any, above: frozenset[int]) -> dict[str, ConfigNode]:
    """What a mapping has, with that which it takes over by ``<<``."""
    found: dict[str, ConfigNode] = {}
    for key, value in node.value:
        made = _node(path, value, _site(path, key), above)
        if key.value == "<<":
            found = made.entries | found
        else:
            found[str(key.value)] = made
    return found


def _site(path: str, node: Any) -> Site:
    start, end = node.start_mark, node.end_mark
    return Site(path, Span(start.line + 1, start.column, end.line + 1, end.column))
