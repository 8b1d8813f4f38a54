"""The options of a program's command line, which are the same on all ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.options import PARSE, destination, flags, is_said
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run

_LOCAL = re.compile(r"--?local[_-]rank")


def option_of(thing: RankThing) -> str:
    """The name of the option that an attribute of the parsed arguments is; "" if it is none."""
    owner = thing.receiver
    if thing.kind != "attribute" or owner is None or not owner.name.endswith(PARSE):
        return ""
    return thing.name.rpartition(".")[2]


def options_in(value: RankValue) -> Iterator[RankValue]:
    """The options that a value is computed from."""
    for thing in value.sources():
        if thing.receiver is not None and option_of(thing):
            known = Symbol(f"{thing.receiver.key}.{option_of(thing)}")
            yield RankValue((known, known), (thing,))


def additions(run: Run) -> list[RankCall]:
    """The calls that define options."""
    return [c for c in run.methods("add_argument") if c.name.startswith(("argparse.", "."))]


def is_local_rank(call: RankCall) -> bool:
    """Whether an option is the one that the launcher before torchrun passed."""
    return any(_LOCAL.fullmatch(flag) for flag in flags(call))


def is_fixed(run: Run, index: RankValue | None) -> bool:
    """Whether the number of a device is a literal, or an option's default, for all ranks."""
    if index is None or index.local:
        return False
    known = index.constant
    if isinstance(known, int) and not isinstance(known, bool):
        return known >= 0
    if isinstance(known, str):
        return known.startswith("cuda:")
    default = default_of(run, index)
    return type(default) is int and default >= 0


def is_option(run: Run, value: RankValue | None) -> bool:
    """Whether a value is, or is made from, an option that torchrun gives to all ranks alike."""
    if value is None or value.local:
        return False
    if any(t.call is not None and t.call.method == "get_device" for t in value.things):
        return False  # where a tensor is, however it was made
    names = {option_of(thing) for thing in value.sources()} - {""}
    local = {destination(call) for call in additions(run) if is_local_rank(call)}
    return bool(names - local)


def default_of(run: Run, value: RankValue) -> object:
    """What an option is where the command line does not say it; None for all other values, and for
    an option that the program sets by itself.

    The option of the local rank is not meant: a launcher may pass it.
    """
    names = {option_of(thing) for thing in value.things}
    if not is_said(run.calls, value):
        return None
    added = [one for one in additions(run) if names == {destination(one)}]
    given = [one.kwargs.get("default") for one in added if not is_local_rank(one)]
    found = [one.constant if one is not None else None for one in given]
    return found[0] if found and all(one == found[0] for one in found) else None


def help_of(run: Run, value: RankValue) -> str:
    """What the program says of an option to those who ask for help."""
    names = {option_of(thing) for thing in value.things}
    added = (one for one in additions(run) if names == {destination(one)})
    said = (one.kwargs["help"].constant for one in added if "help" in one.kwargs)
    return next((one for one in said if isinstance(one, str)), "")
