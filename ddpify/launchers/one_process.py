"""Commands of launchers that start one process, because that is written there.

torchrun is told so by ``--nproc_per_node=1``; deepspeed by ``--num_gpus 1``, by one GPU in
``--include``, or by the one GPU that it sees. What the shell fills in may be any number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ddpify.launchers.at_once import own_options
from ddpify.launchers.gpus import VARIABLE
from ddpify.launchers.script import Script

_LAUNCHER: Final = re.compile(
    r"(?:\btorchrun|-m\s+torch\.distributed\.(?:launch|run)|(?P<deepspeed>(?<![\w.-])deepspeed))(?=\s)"
)
_PINNED: Final = re.compile(rf"\b{VARIABLE}=(\S*)\s")
_EXPORTED: Final = re.compile(rf"^[ \t]*(export[ \t]+)?{VARIABLE}=([^\s;]*)[ \t;]*$", re.MULTILINE)
_ONE_GPU: Final = re.compile(r"[\w.-]+:\d+")  # of --include
_HOSTS: Final = frozenset(("hostfile", "H", "exclude", "e"))


def starts_one(command: str, around: str) -> bool:
    """Whether a launcher's command, of the script ``around``, starts one process."""
    found = [*_LAUNCHER.finditer(command)]
    if len(found) != 1:
        return False
    after = command[found[0].end() :].partition("`")[0]  # of what a text tells people
    read = Script.parse("", f"torchrun{after}").commands
    told = own_options(read[0].words[1:]) if read else None
    if told is None:
        return False
    if found[0]["deepspeed"]:
        return _deepspeed(told, _sees_one(command[: found[0].start()], around))
    return told.get("nproc_per_node") == "1" and told.get("nnodes", "1") in ("1", "1:1")


def _deepspeed(told: Mapping[str, str | None], pinned: bool) -> bool:
    numbers = [told[name] for name in ("num_nodes", "num_gpus") if name in told]
    if not _HOSTS.isdisjoint(told) or any(number != "1" for number in numbers):
        return False
    included = [told[name] for name in ("include", "i") if name in told]
    if included:
        return all(_ONE_GPU.fullmatch(one or "") for one in included)
    return "num_gpus" in told or (pinned and not numbers)  # of a number, it forgets what it sees


def _sees_one(before: str, around: str) -> bool:
    """Whether ``CUDA_VISIBLE_DEVICES`` is one GPU, before the command or for the whole script."""
    own = _PINNED.findall(before)
    if own:
        return _is_one(own[-1])
    lines = _EXPORTED.findall(around)
    return any(export for export, _ in lines) and all(_is_one(ids) for _, ids in lines)


def _is_one(ids: str) -> bool:
    return ids.strip("\"'").isdecimal()
