"""New code for a place, with what it imports, or the reason why there is none."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Import, Severity
from ddpify.source import Site

RULE: Final = "DDP930"
_HOMES: Final = {
    **dict.fromkeys(
        "fully_shard FSDPModule MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy".split(),
        "torch.distributed.fsdp",
    ),
    **dict.fromkeys(
        "StateDictOptions get_model_state_dict set_model_state_dict get_optimizer_state_dict"
        " set_optimizer_state_dict".split(),
        "torch.distributed.checkpoint.state_dict",
    ),
    "init_device_mesh": "torch.distributed.device_mesh",
    "get_world_size": "torch.distributed",
    "DTensor": "torch.distributed.tensor",
    "GradScaler": "torch.amp",
    "clip_grad_norm_": "torch.nn.utils",
    "replace": "dataclasses",
    "cuda": "torch",
    "nn": "torch",
}


class NoCounterpart(Exception):
    """Something that FSDP2 does not have, or that is not followed: where, what, and what to do."""

    def __init__(self, site: Site, what: str, advice: str) -> None:
        super().__init__(what)
        self.finding = Finding(RULE, site, what, Severity.ERROR, advice=advice)


@dataclass(frozen=True)
class NamedArguments:
    """The arguments of a call by name, as nodes."""

    tree: Tree
    node: ast.Call
    by_name: dict[str, ast.expr]

    @classmethod
    def of(cls, tree: Tree, node: ast.Call, names: Sequence[str]) -> NamedArguments:
        """The arguments of a call whose parameters have these names. Raises NoCounterpart."""
        unknown = [one for one in node.keywords if one.arg is None or one.arg not in names]
        starred = any(isinstance(one, ast.Starred) for one in node.args)
        if unknown or starred or len(node.args) > len(names):
            what = f"`{unknown[0].arg}`" if unknown and unknown[0].arg else "a list of arguments"
            raise NoCounterpart(
                tree.site(unknown[0].value if unknown else node),
                f"{what} is given to `{tree.text(node.func)}`, which is not followed",
                "write the arguments that are known out, then run again",
            )
        named = {one.arg: one.value for one in node.keywords if one.arg}
        return cls(tree, node, {**dict(zip(names, node.args, strict=False)), **named})

    def get(self, name: str) -> ast.expr | None:
        """An argument; nothing for ``None``, which is the default of all that ask."""
        node = self.by_name.get(name)
        return None if isinstance(node, ast.Constant) and node.value is None else node

    def flag(self, name: str, default: bool) -> bool:
        """A flag that is written as such. Raises NoCounterpart."""
        node = self.by_name.get(name)
        if node is None:
            return default
        if not isinstance(node, ast.Constant) or not isinstance(node.value, bool):
            raise NoCounterpart(
                self.tree.site(node),
                f"which value `{name}` has is not followed",
                f"write {name}=True or {name}=False, then run again",
            )
        return node.value

    def refuse(self, advice: dict[str, str]) -> None:
        """Raise NoCounterpart for the first of these arguments that is given."""
        for name, way in advice.items():
            if node := self.get(name):
                what = f"`{name}` has no counterpart that is written here"
                raise NoCounterpart(self.tree.site(node), what, way)


def tried(site: Site, what: str, edits: Callable[[], Iterable[Edit]]) -> Iterator[Finding]:
    """One finding with the edits, or the reason why there are none."""
    try:
        made = tuple(edits())
    except NoCounterpart as error:
        yield error.finding
    else:
        if made:
            yield Finding(RULE, site, what, Severity.ERROR, made)


def written(how: How, site: Site, code: str) -> Edit:
    """An edit with the imports that its code needs."""
    return Edit(how, site, code, imports=imported(code))


def imported(code: str) -> tuple[Import, ...]:
    """The imports of the names in a code, some statements or an expression."""
    tree = ast.parse(code.replace("{}", "_"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return tuple(sorted(Import(_HOMES[name], name) for name in names if name in _HOMES))


def is_simple(node: ast.AST) -> bool:
    """``model``, ``self.model``: the same whenever it is computed."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
