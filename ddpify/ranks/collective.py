"""Calls of collectives of torch.distributed, their arguments by name however they are given."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpify.ranks import other_libraries, words
from ddpify.ranks.members import has_both
from ddpify.ranks.model import RankCall, RankValue

_WORLD = frozenset({f"{words.DIST}group.WORLD", f"{words.DIST}GroupMember.WORLD"})
# They give what they make; the others give None, or a handle if they do not wait.
_GIVING = words.GROUP_OPS | {"init_device_mesh", "all_reduce_coalesced"}

_PARAMETERS = {
    **{f"{words.DIST}{op}": tuple(names.split()) for op, names in words.COLLECTIVES.items()},
    **{name: tuple(names.split()) for name, names in words.FUNCTIONS.items()},
}


@dataclass(frozen=True)
class Collective:
    """One call of ``torch.distributed.<op>``, or of the function that gives the same."""

    call: RankCall
    parameters: tuple[str, ...]

    def given(self, name: str) -> RankValue | None:
        """The argument for a parameter; None if it is left out, or if there is no such one."""
        return self.call.arg(self._place(name), name)

    def node(self, name: str) -> ast.expr | None:
        """The expression of that argument."""
        place = self._place(name)
        before = self.call.node.args[: place + 1]
        if any(isinstance(one, ast.Starred) for one in before):
            place = -1
        return self.call.node_of(place, name)

    def _place(self, name: str) -> int:
        return self.parameters.index(name) if name in self.parameters else -1

    @property
    def filled(self) -> str:
        """The parameter whose argument is changed in place."""
        return self.parameters[0]

    @property
    def group(self) -> RankValue | None:
        """The group, unless it is the one of all ranks."""
        value = self.given("group") or self.given("parent_pg")
        return None if value is None or is_world(value) else value

    @property
    def waits(self) -> bool | None:
        """Whether the collective returns when it is done; None if that is not known."""
        value = self.given("async_op")
        if value is None:
            return True
        known = value.constant
        return None if known is None else not known

    @property
    def gives_none(self) -> bool:
        """Whether the collective surely returns None."""
        return self.waits is True and self.call.method not in _GIVING and not self.functional

    @property
    def functional(self) -> bool:
        """Whether the collective returns its result: the arguments stay as they are."""
        return self.call.name in words.FUNCTIONS

    @property
    def divided(self) -> bool:
        """Whether rank 0 and rank 1 are surely not both in its group: ``new_group([0])``."""
        return self.group is not None and has_both(self.group) is False

    @property
    def whole(self) -> bool:
        """Whether rank 0 and rank 1 surely meet in it: in the group of all, or in one that both are
        in, such as ``new_group(backend="gloo")``."""
        return self.group is None or has_both(self.group) is True


def collective(call: RankCall) -> Collective | None:
    """The call as a collective of torch.distributed, if it is one."""
    parameters = _PARAMETERS.get(call.name)
    return Collective(call, parameters) if parameters is not None else None


def exchange(call: RankCall) -> Collective | None:
    """The call as a collective of torch.distributed or of mpi4py, if it is one."""
    parameters = other_libraries.PARAMETERS.get(call.name)
    return Collective(call, tuple(parameters.split())) if parameters else collective(call)


def is_world(group: RankValue) -> bool:
    """Whether an argument means the group of all ranks: None, or ``group.WORLD``."""
    if group.known and (group.atoms == (None, None) or group.constant is not None):
        return True
    return bool(group.things) and group.names() <= _WORLD
