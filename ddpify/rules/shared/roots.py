"""Lists that only the root of a collective may give, or that are too short or too long."""

from __future__ import annotations

from typing import Final

from ddpify.ranks import sizes
from ddpify.ranks.collective import Collective
from ddpify.rules.shared.complaints import Complaint
from ddpify.rules.shared.lengths import is_given, length, stays

# The list that the root alone gives, and the parameter that says who that is.
_ROOTED: Final = {
    "gather": ("gather_list", "dst"),
    "gather_object": ("object_gather_list", "dst"),
    "scatter": ("scatter_list", "src"),
}
_USUAL: Final = 8  # so many processes a program may be written for
# A list with an element for each rank.
OF_ALL: Final = {
    "all_gather": "tensor_list",
    "all_gather_object": "object_list",
    "gather": "gather_list",
    "gather_object": "object_gather_list",
    "scatter": "scatter_list",
}


def wrong(shared: Collective) -> Complaint | None:
    """What is wrong with the lists of a call, if anything is."""
    call = shared.call
    if shared.functional or call.method not in OF_ALL:
        return None
    given = shared.node(OF_ALL[call.method])
    if given is not None and not stays(call, given):
        return None
    return _misplaced(shared) or _uneven(shared)


def fixed(shared: Collective) -> Complaint | None:
    """A list that mpi4py scatters of which the length has nothing to do with the ranks' number."""
    call, value = shared.call, shared.given("sendobj")
    node = shared.node("sendobj")
    if call.method != "scatter" or value is None or node is None or not stays(call, node):
        return None
    root = shared.given("root")
    number = root.constant if root is not None else 0
    rank = sizes.with_two(number) if isinstance(number, int) else -1
    held = length(value, rank) if rank in (0, 1) and call.ranks & (1 << rank) else None
    if held is None or sizes.with_two(held) <= _USUAL or isinstance(held, sizes.Sized):
        return None
    return Complaint(
        call.site,
        f"scatter() takes one element for each rank, and this list has {held}: a crash with any"
        " other number of processes",
        "scatter a list of lists, one for each rank",
    )


def _misplaced(shared: Collective) -> Complaint | None:
    name, parameter = _ROOTED.get(shared.call.method, ("", ""))
    root = shared.given(parameter)
    number = root.constant if root is not None else 0
    if not name or number is None or shared.given(f"group_{parameter}") is not None:
        return None
    for rank in (0, 1):
        has = is_given(shared.given(name), rank) if shared.call.ranks & (1 << rank) else None
        if has is None or has is (rank == sizes.with_two(number)):
            continue
        what = (
            f"rank {rank} is not the `{parameter}` of this"
            if has
            else (f"rank {rank} is the `{parameter}` of this")
        )
        ends = f"and gives a `{name}`" if has else f"and gives no `{name}`"
        return Complaint(
            shared.call.site,
            f"{what} {shared.call.method}() {ends}: a crash",
            f"give the list on the rank that is `{parameter}`, and None on the others",
        )
    return None


def _uneven(shared: Collective) -> Complaint | None:
    name = OF_ALL[shared.call.method]
    value = shared.given(name)
    for rank in (0, 1):
        if value is None or not shared.call.ranks & (1 << rank):
            continue
        number = length(value, rank)
        if number and sizes.never_all(number):
            return Complaint(
                shared.call.site,
                f"`{name}` has another length than there are ranks: a crash",
                "give one element for each rank, the root's own among them",
            )
    return None
